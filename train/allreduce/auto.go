package allreduce

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train"
)

// An auto is a codec that encodes those parts of the gradient whose sums it is predicted to make clearly faster. A choice hangs on the length
// of a part, and on what all workers know alone: so all choose the same, and what codecs kept of the same lengths is of the same parts, whatever
// another run chose.
type auto struct {
	codec   compress.Codec
	choices []choice // nil: the workers share memory, or nothing is dense
	shared  bool
}

// A choice is of the parts that have so many cells.
type choice struct {
	cells, parts int
	plain, coded time.Duration // what a sum takes; 0: there is no prediction
}

// leastEncoded is the length in bytes from which a part may be encoded. What is shorter takes its time for being sent at all.
const leastEncoded = 4 << 10

// clearly is how many times as long a sum must take as it is: predictions are up to a fifth off, and a codec costs digits in any case.
const clearly = 1.2

func (c choice) pays() bool {
	return 4*c.cells >= leastEncoded && c.coded > 0 && float64(c.plain) > clearly*float64(c.coded)
}

// weigh measures what codec costs, and chooses. The gradient is cut as with any codec; where the optimizer is sharded, of what is not encoded each
// worker gets a part of the sum. All workers call it.
func (x *exchange) weigh(ctx context.Context, l *trivium.Layout, codec compress.Codec, sharded bool) (*auto, error) {
	a := &auto{codec: codec, shared: x.g.Shares()}
	if a.shared {
		return a, nil
	}
	plain, coded := collective.Op{}, collective.Op{Codec: codec}
	if sharded {
		plain.Kind = collective.ReduceScatter
	}
	var lens []int // that it may encode
	for _, b := range x.denseBuckets(l, collective.Costs{}) {
		n := b.To - b.From
		if c := a.of(n); c != nil {
			c.parts++
			continue
		}
		a.choices = append(a.choices, choice{cells: n, parts: 1, plain: x.g.Predict(plain, n, collective.Coding{})})
		if 4*n >= leastEncoded && x.g.Fits(coded, n) == nil {
			lens = append(lens, n)
		}
	}
	codings, err := x.g.MeasureCodec(ctx, codec, lens)
	if err != nil {
		return nil, err
	}
	for i, n := range lens {
		a.of(n).coded = x.g.Predict(coded, n, codings[i])
	}
	return a, nil
}

// of is the choice for parts of so many cells; nil: there is none.
func (a *auto) of(cells int) *choice {
	i := slices.IndexFunc(a.choices, func(c choice) bool { return c.cells == cells })
	if i < 0 {
		return nil
	}
	return &a.choices[i]
}

// encodes says whether the codec runs for parts of so many cells: of no auto, for all.
func (a *auto) encodes(cells int) bool { return a == nil || a.of(cells).pays() }

// pays says whether the codec encodes anything.
func (a *auto) pays() bool { return slices.ContainsFunc(a.choices, choice.pays) }

// tell tells the run what was chosen, in a sentence, and why, in an event for each length.
func (a *auto) tell(run *train.Run) {
	encoded, parts := 0, 0
	var plain, coded time.Duration // of what is encoded
	for _, c := range a.choices {
		by := "as it is"
		if parts += c.parts; c.pays() {
			by = "by " + a.codec.String()
			encoded += c.parts
			plain, coded = plain+time.Duration(c.parts)*c.plain, coded+time.Duration(c.parts)*c.coded
		}
		run.Event(observe.Info, "codec", run.At().Step, fmt.Sprintf("parts of %d bytes, of which there are %d, are summed %s: %s as they are, %s by %s",
			4*c.cells, c.parts, by, predicted(c.plain), predicted(c.coded), a.codec))
	}
	text := fmt.Sprintf("%s encodes %d of the gradient's %d parts: their sums are predicted to take %v in place of %v",
		a.codec, encoded, parts, coded.Round(time.Microsecond), plain.Round(time.Microsecond))
	switch {
	case a.shared:
		text = fmt.Sprintf("%s encodes nothing: the workers share memory", a.codec)
	case encoded == 0:
		text = fmt.Sprintf("%s encodes nothing: it is predicted to make no sum clearly faster", a.codec)
	}
	run.Notice(observe.Info, "codec", text)
}
