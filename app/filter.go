package app

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium/internal/nearest"
)

// A filter is a condition on the fields of a run, such as
//
//	model=softmax and (test.accuracy > 0.9 or not status=finished)
//
// A comparison is FIELD OP VALUE with =, !=, <, <=, >, >= or ~ (contains). Numbers compare as numbers, all else as text. A run
// without the field fails every comparison.
type filter struct {
	holds func(fields map[string]string) bool
	names []comparison // what it compares, in its order
}

type comparison struct{ field, op, value string }

// parseFilter reads text; an empty one holds always.
func parseFilter(text string) (*filter, error) {
	p := &filterParser{words: filterWords(text)}
	if len(p.words) == 0 {
		return &filter{holds: func(map[string]string) bool { return true }}, nil
	}
	holds, err := p.or()
	if err == nil && p.at < len(p.words) {
		err = fmt.Errorf("%q is left over", p.words[p.at])
	}
	if err != nil {
		return nil, fmt.Errorf("filter: %w; want conditions such as 'model=softmax and test.accuracy>0.9'", err)
	}
	return &filter{holds, p.names}, nil
}

// mistaken reports what cannot be meant of these runs: a field that none has, or the order of numbers and what is none.
func (f *filter) mistaken(runs []map[string]string) error {
	all := map[string]string{}
	for _, r := range runs {
		maps.Copy(all, r)
	}
	names := slices.Sorted(maps.Keys(all))
	for _, c := range f.names {
		if _, ok := all[c.field]; !ok && len(runs) > 0 {
			return fmt.Errorf("filter: no run has the field %q; %s", c.field, suggested(c.field, names))
		}
		text := func(r map[string]string) bool { have, ok := r[c.field]; return ok && !isNumber(have) }
		if strings.ContainsAny(c.op, "<>") && !isNumber(c.value) && len(runs) > 0 && !slices.ContainsFunc(runs, text) {
			return fmt.Errorf("filter: the field %q holds numbers, such as %s; after %q want a number, found %q",
				c.field, all[c.field], c.field+c.op, c.value)
		}
	}
	return nil
}

// suggested completes an error about an unknown field: the nearest, or those with such a part, as test.accuracy for acc, or else where all are.
func suggested(field string, names []string) string {
	if nearest.Name(field, names) != "" {
		return nearest.Sentence(field, names)
	}
	var parts []string
	for _, n := range names {
		if strings.Contains(n, field) {
			parts = append(parts, n)
		}
	}
	if len(parts) > 0 {
		return "there are " + strings.Join(parts, ", ")
	}
	return "runs show prints those of a run"
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

type filterParser struct {
	words []string
	at    int
	names []comparison
}

type condition = func(map[string]string) bool

func (p *filterParser) next() string {
	if p.at == len(p.words) {
		return ""
	}
	p.at++
	return p.words[p.at-1]
}

func (p *filterParser) accept(word string) bool {
	if p.at < len(p.words) && p.words[p.at] == word {
		p.at++
		return true
	}
	return false
}

func (p *filterParser) or() (condition, error) {
	left, err := p.and()
	for err == nil && p.accept("or") {
		var right condition
		a := left
		if right, err = p.and(); err == nil {
			left = func(f map[string]string) bool { return a(f) || right(f) }
		}
	}
	return left, err
}

func (p *filterParser) and() (condition, error) {
	left, err := p.not()
	for err == nil && p.accept("and") {
		var right condition
		a := left
		if right, err = p.not(); err == nil {
			left = func(f map[string]string) bool { return a(f) && right(f) }
		}
	}
	return left, err
}

func (p *filterParser) not() (condition, error) {
	if p.accept("not") {
		inner, err := p.not()
		return func(f map[string]string) bool { return !inner(f) }, err
	}
	if p.accept("(") {
		inner, err := p.or()
		if err == nil && !p.accept(")") {
			err = fmt.Errorf("a bracket is not closed")
		}
		return inner, err
	}
	return p.comparison()
}

func (p *filterParser) comparison() (condition, error) {
	field, op, value := p.next(), p.next(), p.next()
	if field == "" {
		return nil, fmt.Errorf("a condition is missing at the end")
	}
	holds, ok := comparisons[op]
	if !ok {
		return nil, fmt.Errorf("after %q want =, !=, <, <=, >, >= or ~; found %q", field, op)
	}
	if value == "" {
		return nil, fmt.Errorf("after %q want a value", field+op)
	}
	value = strings.Trim(value, `"'`)
	p.names = append(p.names, comparison{field, op, value})
	return func(f map[string]string) bool {
		have, ok := f[field]
		return ok && holds(have, value)
	}, nil
}

var comparisons = map[string]func(have, want string) bool{
	"=":  func(a, b string) bool { return order(a, b) == 0 },
	"!=": func(a, b string) bool { return order(a, b) != 0 },
	"<":  func(a, b string) bool { return order(a, b) == -1 },
	"<=": func(a, b string) bool { return order(a, b) <= 0 },
	">":  func(a, b string) bool { return order(a, b) == 1 },
	">=": func(a, b string) bool { o := order(a, b); return o == 0 || o == 1 },
	"~":  strings.Contains,
}

// order compares as numbers where both are, else as texts: -1, 0 or 1; and 2 where one is not a number at all.
func order(a, b string) int {
	x, errA := strconv.ParseFloat(a, 64)
	y, errB := strconv.ParseFloat(b, 64)
	if errA != nil || errB != nil {
		return strings.Compare(a, b)
	}
	if m, n := whole(a), whole(b); m != nil && n != nil { // such as seeds, of which float64 takes many for one
		return m.Cmp(n)
	}
	switch {
	case x < y:
		return -1
	case x == y:
		return 0
	case x > y:
		return 1
	}
	return 2
}

// whole is the integer that s writes in digits, or nil.
func whole(s string) *big.Int {
	const most = 40 // a run has none that is longer
	if len(s) > most {
		return nil
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return nil
	}
	return n
}

// filterWords cuts text into names, values in quotes, operators and brackets.
func filterWords(text string) (words []string) {
	for i := 0; i < len(text); {
		rest := text[i:]
		n := 1
		switch c := rest[0]; {
		case c == ' ' || c == '\t' || c == '\n':
			i++
			continue
		case strings.HasPrefix(rest, "!=") || strings.HasPrefix(rest, "<=") || strings.HasPrefix(rest, ">="):
			n = 2
		case strings.HasPrefix(rest, "=="): // as many languages write it
			words = append(words, "=")
			i += 2
			continue
		case strings.ContainsRune("()=<>~", rune(c)):
		case c == '"' || c == '\'':
			if end := strings.IndexByte(rest[1:], c); end >= 0 {
				n = end + 2
			} else {
				n = len(rest)
			}
		default:
			if n = strings.IndexAny(rest, " \t\n()=<>~!\"'"); n <= 0 {
				n = len(rest)
				if rest[0] == '!' {
					n = 1
				}
			}
		}
		words = append(words, rest[:n])
		i += n
	}
	return words
}
