// Command mf is trivium with matrix factorisation, and the ratings of the MovieLens sample.
//
//	mf train mf:4 --data movielens --topology server --workers 3 --processes --consistency ssp:3 --clocks 4 --epochs 40
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/app"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/examples/pmls/mf"
	"github.com/trivium-ml/trivium/nn"
)

func main() {
	models := nn.Standard()
	models["mf"] = mf.New
	app.Main(app.Options{Models: models, Sources: data.Sources{"movielens": movielens}})
}

const file = "sample_movielens_ratings.txt" // user::item::rating::time, as Apache Spark ships it

// movielens reads the sample from here or from beside the project; where there is none, it makes ratings of its shape.
func movielens(_ context.Context, d trivium.Data) (*data.Splits, error) {
	if err := data.RefuseSettings(d); err != nil {
		return nil, err
	}
	for _, dir := range []string{".", "shared/data/mllib", "../shared/data/mllib", "../../shared/data/mllib"} {
		f, err := os.Open(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		defer f.Close()
		var all ratings
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			user, item, rating, err := parse(lines.Text())
			if err != nil {
				return nil, fmt.Errorf("%s: line %d: %w", f.Name(), len(all)+1, err)
			}
			all = append(all, struct {
				user, item int32
				rating     float32
			}{user, item, rating})
		}
		return all.splits(), lines.Err()
	}
	s := generated().splits()
	s.Notes = append(s.Notes, file+" is not on this machine: ratings of its shape are generated")
	return s, nil
}

// parse reads a line of the sample.
func parse(line string) (user, item int32, rating float32, err error) {
	fields := strings.Split(line, "::")
	bad := fmt.Errorf("want user::item::rating::time, found %q", line)
	if len(fields) != 4 {
		return 0, 0, 0, bad
	}
	u, err1 := strconv.ParseUint(fields[0], 10, 31)
	i, err2 := strconv.ParseUint(fields[1], 10, 31)
	x, err3 := strconv.ParseFloat(fields[2], 32)
	_, err4 := strconv.ParseInt(fields[3], 10, 64)
	if errors.Join(err1, err2, err3, err4) != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, 0, 0, bad
	}
	return int32(u), int32(i), float32(x), nil
}

type ratings []struct {
	user, item int32
	rating     float32
}

// generated are 1,501 ratings of 100 items by 30 users: what two tastes and chance make of them.
func generated() (all ratings) {
	unit := func(what, i uint64) float64 { return float64(draw.Unit(1, what, i)) }
	for i := range uint64(1501) {
		user, item := draw.Below(2, 1, i, 30), draw.Below(2, 2, i, 100)
		x := 3 + 2*unit(1, user)*unit(2, item) + 2*unit(3, user)*unit(4, item) + 0.3*unit(5, i)
		all = append(all, struct {
			user, item int32
			rating     float32
		}{int32(user), int32(item), float32(min(max(math.Round(x), 1), 5))})
	}
	return all
}

// splits puts each fifth rating, by chance, aside for testing.
func (all ratings) splits() *data.Splits {
	users, items := 0, 0
	for _, x := range all {
		users, items = max(users, int(x.user)+1), max(items, int(x.item)+1)
	}
	var s data.Splits
	for k, ds := range []*data.Dataset{&s.Train, &s.Test} {
		b := trivium.Batch{
			Inputs: []trivium.Input{{Name: "user", Form: trivium.CSR, Shape: []int{users}, Ptr: []int64{0}}, {Name: "item", Form: trivium.CSR, Shape: []int{items}, Ptr: []int64{0}}},
			Labels: trivium.Labels{Kind: trivium.Real, Width: 1},
		}
		for i, x := range all {
			if (draw.Below(3, 1, uint64(i), 5) == 0) != (k == 1) {
				continue
			}
			b.Rows++
			for k, id := range []int32{x.user, x.item} {
				in := &b.Inputs[k]
				in.Index, in.Values, in.Ptr = append(in.Index, id), append(in.Values, 1), append(in.Ptr, int64(b.Rows))
			}
			b.Labels.Real = append(b.Labels.Real, x.rating)
		}
		schema := trivium.Schema{Labels: trivium.LabelSpec{Kind: trivium.Real, Width: 1}}
		for _, in := range b.Inputs {
			schema.Inputs = append(schema.Inputs, trivium.InputSpec{Name: in.Name, Form: in.Form, Shape: in.Shape})
		}
		*ds = data.Memory(schema, b)
	}
	return &s
}
