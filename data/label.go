package data

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/trivium-ml/trivium"
)

// LabelMode says what labels are, where the model knows better than the data.
type LabelMode uint8

const (
	LabelsAuto  LabelMode = iota // classes if text, or integers of at most maxAutoClasses values; else real numbers
	LabelsClass                  // each value is a class
	LabelsReal                   // numbers to predict
)

const (
	maxAutoClasses = 100     // more integers than this are taken for quantities, such as counts or prices
	maxClasses     = 1 << 20 // a model has a row of weights for each
	maxLabel       = 1 << 24 // from here on float32 does not tell a whole number from the next
)

// labelSet collects the distinct numeric labels of a file: how often each occurs, and the first row that has it.
type labelSet struct {
	seen map[float32]labelCount
	over bool // more than maxClasses
}

type labelCount struct{ first, rows int64 }

func (s *labelSet) add(v float32, row int64) { s.addCount(v, labelCount{row, 1}) }

func (s *labelSet) addCount(v float32, c labelCount) {
	if s.seen == nil {
		s.seen = map[float32]labelCount{}
	}
	v += 0 // -0 and 0 are one key, which would be named by the last of them
	at, ok := s.seen[v]
	switch {
	case ok:
		s.seen[v] = labelCount{min(at.first, c.first), at.rows + c.rows}
	case len(s.seen) >= maxClasses:
		s.over = true
	default:
		s.seen[v] = c
	}
}

func (s *labelSet) merge(o *labelSet) {
	s.over = s.over || o.over
	for v, c := range o.seen {
		s.addCount(v, c)
	}
}

// values returns the distinct labels, ascending.
func (s *labelSet) values() []float32 {
	out := make([]float32, 0, len(s.seen))
	for v := range s.seen {
		out = append(out, v)
	}
	slices.Sort(out)
	return out
}

// spec decides what numeric labels mean. declared is the number of classes that the job states, or 0. bad is the row of a label that
// contradicts it, or −1.
func (s *labelSet) spec(mode LabelMode, declared int) (spec trivium.LabelSpec, bad int64, err error) {
	values := s.values()
	integers := true
	for _, v := range values {
		integers = integers && v == float32(math.Trunc(float64(v)))
	}
	classes := mode == LabelsClass || declared > 0 || mode == LabelsAuto && integers && len(values) <= maxAutoClasses && !s.over
	if mode == LabelsReal || !classes {
		return trivium.LabelSpec{Kind: trivium.Real, Width: 1}, -1, nil
	}
	if s.over {
		return spec, -1, setting("label", "more than %d distinct labels: they are no classes; use a model for real numbers", maxClasses)
	}
	for _, v := range values {
		if v >= maxLabel || v <= -maxLabel {
			return spec, s.seen[v].first, fault("", "label %s is too large for a class: from %d on numbers run together; number the classes from 0, or, in a table, name the column categorical",
				labelName(v), maxLabel)
		}
	}
	spec.Kind = trivium.Class
	if declared > 0 {
		return declaredClasses(values, declared, s)
	}
	if integers && len(values) > 0 && values[0] >= 0 && values[0] <= 1 && values[len(values)-1] < 2*maxAutoClasses && !oneBased(values) {
		// 0, 1, 3 of a small sample are the classes 0 to 3: numbers stay what they are.
		spec.Width = max(2, int(values[len(values)-1])+1)
		spec.Names = classNumbers(spec.Width)
		return spec, -1, nil
	}
	for _, v := range values {
		spec.Names = append(spec.Names, labelName(v))
	}
	spec.Width = len(spec.Names)
	return spec, -1, nil
}

// oneBased reports whether the values count from 1: then they are names, and 0 is no class.
func oneBased(values []float32) bool { return values[0] == 1 && len(values) > 1 }

// declaredClasses names n classes: 0 to n−1, or 1 to n, or −1 and +1.
func declaredClasses(values []float32, n int, s *labelSet) (spec trivium.LabelSpec, bad int64, err error) {
	spec = trivium.LabelSpec{Kind: trivium.Class, Width: n, Names: classNumbers(n)}
	if len(values) == 0 {
		return spec, -1, nil
	}
	lowest, highest := values[0], values[len(values)-1]
	switch {
	case n == 2 && lowest == -1 && (highest == 1 && len(values) == 2 || highest == -1):
		spec.Names = []string{"-1", "1"}
		return spec, -1, nil
	case lowest >= 1 && highest == float32(n):
		for i := range spec.Names {
			spec.Names[i] = strconv.Itoa(i + 1)
		}
	}
	classes := newClassIndex(spec.Names)
	for _, v := range values {
		if _, ok := classes.of(v); !ok {
			return spec, s.seen[v].first, fault("", "label %s is outside the %d classes declared, %s to %s", labelName(v), n,
				spec.Names[0], spec.Names[n-1])
		}
	}
	return spec, -1, nil
}

// labelName writes a numeric label as a class name: as files have it, without an exponent.
func labelName(v float32) string { return strconv.FormatFloat(float64(v), 'f', -1, 32) }

// classIndex finds the class of numeric labels. Class names that are no numbers have none.
type classIndex struct {
	byNumber map[float32]int32
	dense    bool // classes are 0, 1, 2, …
	classes  int
}

func newClassIndex(names []string) *classIndex {
	x := &classIndex{byNumber: make(map[float32]int32, len(names)), dense: true, classes: len(names)}
	for i, name := range names {
		v, err := strconv.ParseFloat(name, 32)
		if err != nil {
			x.dense = false
			continue
		}
		x.byNumber[float32(v)] = int32(i)
		x.dense = x.dense && float32(v) == float32(i)
	}
	return x
}

func (x *classIndex) of(v float32) (int32, bool) {
	if x.dense {
		c := int32(v)
		return c, v >= 0 && v < float32(x.classes) && float32(c) == v
	}
	c, ok := x.byNumber[v]
	return c, ok
}

// checkLabels refuses rows to measure on that have no labels, such as those of a contest, beside training rows that have: training would go
// on until it first measures.
func (s *Splits) checkLabels() error {
	if s.Train == nil || s.Train.Schema().Labels.Kind == trivium.NoLabel {
		return nil
	}
	for _, p := range []struct {
		name string
		rows Dataset
	}{{"valid", s.Valid}, {"test", s.Test}} {
		if p.rows == nil || p.rows.Schema().Labels.Kind != trivium.NoLabel {
			continue
		}
		none := "no labels"
		if column := s.Transform.Label.Column; column != "" {
			none = fmt.Sprintf("no column %q, which is the label", column)
		}
		return setting(p.name, "its rows have %s, and nothing can be measured on them: name others, such as 0.2 for a fifth of the training file, and have apply predict these", none)
	}
	return nil
}

// listNames writes class names for a message.
func listNames(names []string) string {
	const most = 12
	var listed []string
	for _, name := range names[:min(len(names), most)] {
		listed = append(listed, string(shortText([]byte(name))))
	}
	text := strings.Join(listed, ", ")
	if len(names) > most {
		text += fmt.Sprintf(", … (%d in all)", len(names))
	}
	return text
}

// shortText is the beginning of a text for a message: a field may be a book.
func shortText(text []byte) []byte {
	const most = 60
	if len(text) <= most {
		return text
	}
	n := most
	for n > most-utf8.UTFMax && !utf8.RuneStart(text[n]) { // a character stays whole
		n--
	}
	return append(text[:n:n], "…"...)
}

// classWeights reads the class_weight setting: empty, "balanced", or "name=weight,…" (classes not named have weight 1; the comma of a name
// is \,). counts are the training rows of each class.
func classWeights(text string, names []string, counts []int64) ([]float32, error) {
	if text == "" {
		return nil, nil
	}
	w := make([]float32, len(names))
	if text == "balanced" {
		var total int64
		for _, n := range counts {
			total += n
		}
		for i, n := range counts {
			if n > 0 { // a class without rows weighs nothing either way
				w[i] = float32(float64(total) / (float64(len(names)) * float64(n)))
			}
		}
		return w, nil
	}
	for i := range w {
		w[i] = 1
	}
	pairs, err := readClassWeights(text)
	if err != nil {
		return nil, err
	}
	weighed := make([]bool, len(names))
	for _, p := range pairs {
		name := p.name
		i := slices.Index(names, name)
		if i < 0 {
			i = slices.Index(names, strings.TrimPrefix(name, "+"))
		}
		if i < 0 {
			e := setting("class_weight", "there is no class %q; the classes are %s", name, listNames(names))
			if strings.Contains(strings.Join(names, ""), ",") {
				e.Msg += `; the comma of a name is \,`
			}
			return nil, e
		}
		if weighed[i] {
			return nil, setting("class_weight", "class %q has two weights: want one", names[i])
		}
		w[i], weighed[i] = p.weight, true
	}
	return w, nil
}

type classWeight struct {
	name   string
	weight float32
}

func readClassWeights(text string) (pairs []classWeight, err error) {
	for _, part := range splitList(text) {
		at := strings.LastIndexByte(part, '=')
		if at < 0 {
			return nil, setting("class_weight", "want balanced or name=weight,…, found %q", text)
		}
		name := strings.TrimSpace(part[:at])
		v, err := strconv.ParseFloat(strings.TrimSpace(part[at+1:]), 32)
		if err != nil || !finite32(v) || v < 0 {
			return nil, setting("class_weight", "class %q: want a weight of 0 or more, found %q", name, part[at+1:])
		}
		pairs = append(pairs, classWeight{name, float32(v)})
	}
	return pairs, nil
}

// CheckClassWeights finds what is wrong with the class_weight setting whatever classes there are.
func CheckClassWeights(text string) error {
	if text == "" || text == "balanced" {
		return nil
	}
	_, err := readClassWeights(text)
	return err
}

// splitList cuts text at its commas, but for those that are written \, as in a flag that lists columns.
func splitList(text string) (parts []string) {
	for part := range strings.SplitSeq(text, ",") {
		if n := len(parts); n > 0 && strings.HasSuffix(parts[n-1], `\`) {
			parts[n-1] = strings.TrimSuffix(parts[n-1], `\`) + "," + part
		} else {
			parts = append(parts, part)
		}
	}
	return parts
}
