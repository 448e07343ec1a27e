package app

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/atomicfile"
	"github.com/trivium-ml/trivium/internal/finite"
)

// applyVerb writes predictions.
type applyVerb struct {
	trainedFlags
	dataFlags
	splitFlags
	To  string `short:"t" default:"-" placeholder:"FILE" help:"Where to write; - is standard output (default)."`
	As  string `placeholder:"csv|jsonl" help:"csv or jsonl; else by the file's name, csv on standard output."`
	Raw bool   `help:"Write the scores as they are, in place of probabilities."`
}

func (applyVerb) Help() string {
	return "Each row's prediction: the class and the probability of each, or the number. With --data, for all rows of that file, or of a folder with one; of a folder or generator that has test rows of its own, for those. Without --data, for the test rows of the run's own data, which are the last of its file where training kept some back. --train, --valid or --test names other rows, such as --test : for all of a file. Rows are numbered as in the file, from 0, and those of a generator as it counts them: its test rows begin far behind those to train on, as at 1000000."
}

func (v *applyVerb) Run(ctx context.Context, s *session) error {
	format := v.As
	if format == "" {
		format = cmp.Or(strings.TrimPrefix(filepath.Ext(v.To), "."), "csv")
		if format != "csv" && format != "jsonl" {
			return misusedf("apply: --to: %s is called neither .csv nor .jsonl; say with --as which of the two is written", v.To)
		}
	}
	if format != "csv" && format != "jsonl" {
		return misusedf("apply: --as: want csv or jsonl, found %q", format)
	}
	t, err := v.load(ctx, s)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.predicts(); err != nil {
		return err
	}
	if n := v.named(); len(n) > 1 {
		return misusedf("apply: --%s and --%s are both given, and the predictions are of one: give one", n[0], n[1])
	}
	sets, err := t.sets(ctx, s, &v.dataFlags, &v.splitFlags, true)
	if err != nil {
		return err
	}
	rows := sets[len(sets)-1].rows // the test rows, or all of the source's
	err = writeTo(s.out, v.To, func(w io.Writer) error {
		p := &predictionWriter{w: w, csv: format == "csv", raw: v.Raw, outputs: t.predictor.Outputs(), labels: t.saved.Schema.Labels}
		if err := t.score(ctx, rows, true, p.write); err != nil {
			return err
		}
		return p.flush()
	})
	if err == nil && v.To != "-" {
		fmt.Fprintf(s.err, "%s: wrote %s\n", s.name, v.To)
	}
	return err
}

// writeTo calls f with standard output, or with a file that gets its name only once f has succeeded.
func writeTo(stdout io.Writer, name string, f func(io.Writer) error) error {
	if name == "" { // as where a script's variable is not set
		return misusedf("--to: want the name of a file, or - for standard output; found none")
	}
	if name == "-" {
		w := bufio.NewWriter(stdout)
		return errors.Join(f(w), w.Flush())
	}
	made := false
	fill := func(file *os.File) error {
		made = true
		w := bufio.NewWriterSize(file, 1<<16)
		if err := f(w); err != nil {
			return err
		}
		return w.Flush()
	}
	var err error
	if writtenInPlace(name) {
		err = overwrite(name, fill)
	} else {
		whole := name
		if real, err := filepath.EvalSymlinks(name); err == nil {
			whole = real // a link stays one, and what it leads to is written
		}
		err = atomicfile.Write(whole, fill, atomicfile.Options{Mode: 0o666})
	}
	if err != nil && !made {
		return unwritable(name, err)
	}
	return err
}

// overwrite has fill write to what is there, such as a pipe, in place of a new file.
func overwrite(name string, fill func(file *os.File) error) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(fill(file), file.Close())
}

// writtenInPlace reports whether another file could not take the place of name: that of a pipe or a device, or of what a process has open, such
// as the file that the shell has for /dev/stdout.
func writtenInPlace(name string) bool {
	info, err := os.Lstat(name)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		path, e := filepath.Abs(name)
		if e == nil && (strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/proc/")) {
			return true
		}
		info, err = os.Stat(name)
	}
	return err == nil && !info.Mode().IsRegular()
}

// unwritable says that the file which --to names cannot be made.
func unwritable(name string, err error) error {
	if info, e := os.Stat(name); e == nil && info.IsDir() {
		return misusedf("--to: %s is a folder; want the name of a file", name)
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	if err = fmt.Errorf("--to: %s: %w", name, err); errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return misused(err)
	}
	return err
}

// A predictionWriter writes a line for each row.
type predictionWriter struct {
	w       io.Writer
	csv     bool
	raw     bool
	outputs trivium.Outputs
	labels  trivium.LabelSpec

	table *csv.Writer
	line  []string
	next  int64
}

// header names the columns.
func (p *predictionWriter) header() []string {
	switch {
	case p.outputs.Task == trivium.Regression && p.outputs.Width == 1:
		return []string{"row", "prediction"}
	case p.outputs.Task == trivium.Regression:
		names := []string{"row"}
		for i := range p.outputs.Width {
			names = append(names, fmt.Sprintf("prediction.%d", i))
		}
		return names
	case p.outputs.Task == trivium.Binary && (p.raw || p.outputs.Margin):
		return []string{"row", "class", "score"}
	}
	names, prefix := []string{"row", "class"}, "p."
	if p.raw {
		prefix = "score."
	}
	for c := range p.classes() {
		names = append(names, prefix+className(p.labels, c))
	}
	return names
}

func (p *predictionWriter) classes() int {
	if p.outputs.Task == trivium.Binary {
		return 2
	}
	return p.outputs.Width
}

func (p *predictionWriter) write(b *trivium.Batch, scores []float32) error {
	if p.csv && p.table == nil {
		p.table = csv.NewWriter(p.w)
		if err := p.table.Write(p.header()); err != nil {
			return err
		}
	}
	probabilities := make([]float64, p.classes())
	for i := range b.Rows {
		row := p.next
		if b.IDs != nil {
			row = b.IDs[i]
		}
		p.next++
		if err := p.row(row, scores[i*p.outputs.Width:(i+1)*p.outputs.Width], probabilities); err != nil {
			return err
		}
	}
	return nil
}

func (p *predictionWriter) row(row int64, scores []float32, probabilities []float64) error {
	class := ""
	values := make([]float64, 0, len(probabilities))
	switch p.outputs.Task {
	case trivium.Regression:
		for _, x := range scores {
			values = append(values, float64(x))
		}
	case trivium.Binary:
		c := 0
		if scores[0] > 0 {
			c = 1
		}
		class = className(p.labels, c)
		if p.raw || p.outputs.Margin {
			values = append(values, float64(scores[0]))
		} else {
			s := float64(scores[0])
			values = append(values, 1/(1+math.Exp(s)), 1/(1+math.Exp(-s))) // each with its digits: 1 less the other has none where it is small
		}
	case trivium.MultiClass:
		class = className(p.labels, softmax(probabilities, scores))
		values = append(values, probabilities...)
		if p.raw {
			for c, x := range scores {
				values[c] = float64(x)
			}
		}
	}
	if p.csv {
		return p.csvRow(row, class, values)
	}
	return p.jsonRow(row, class, values)
}

func (p *predictionWriter) csvRow(row int64, class string, values []float64) error {
	p.line = append(p.line[:0], strconv.FormatInt(row, 10))
	if p.outputs.Task != trivium.Regression {
		p.line = append(p.line, class)
	}
	for _, x := range values {
		p.line = append(p.line, strconv.FormatFloat(x, 'g', -1, 32)) // as many digits as tell it from others
	}
	return p.table.Write(p.line)
}

func (p *predictionWriter) jsonRow(row int64, class string, values []float64) error {
	names := p.header()
	o := map[string]any{"row": row}
	if p.outputs.Task != trivium.Regression {
		o["class"] = class
	}
	for i, x := range values {
		o[names[len(names)-len(values)+i]] = finite.OrNil(float64(float32(x)))
	}
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = p.w.Write(append(line, '\n'))
	return err
}

func (p *predictionWriter) flush() error {
	if p.table == nil {
		return nil
	}
	p.table.Flush()
	return p.table.Error()
}

// softmax writes the probabilities of the scores to dst and returns the class of the highest, the first of equals.
func softmax(dst []float64, scores []float32) (best int) {
	for c, x := range scores {
		if x > scores[best] {
			best = c
		}
	}
	var sum float64
	for c, x := range scores {
		dst[c] = math.Exp(float64(x) - float64(scores[best]))
		sum += dst[c]
	}
	for c := range dst {
		dst[c] /= sum
	}
	return best
}
