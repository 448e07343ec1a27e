package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/internal/nearest"
)

// A jobFile is a job.yaml: the fields of a trivium.Job, all optional. It remembers on which line each stands.
type jobFile struct {
	name  string
	lines map[string]int  // by dotted field
	wrong map[string]bool // of these, whose values cannot be theirs, and keys that are no fields, as is said already
	flags given           // what the command line gives in their place: mistakes in it are on no line
}

// maxJobBytes bounds a job file: one with every key and its explanation is a hundredth of it.
const maxJobBytes = 1 << 20

// readJobFile reads the file into job, over what is there, and notes what it gives. It reports every mistake, each with its line. program is what the
// user calls this one.
func readJobFile(name, program string, job *trivium.Job, g given) (*jobFile, error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--file: %w; %q writes one to start from", err, program+" init")
	}
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxJobBytes+1)) // a pipe or a device does not say how much comes
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	if len(text) > maxJobBytes {
		return nil, fmt.Errorf("%s: more than %d bytes, which a job file has at most", name, maxJobBytes)
	}
	return decodeJob(name, program, text, job, g)
}

func decodeJob(name, program string, text []byte, job *trivium.Job, g given) (*jobFile, error) {
	f := &jobFile{name, map[string]int{}, map[string]bool{}, nil}
	var document yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	if err := documents.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return f, fmt.Errorf("%s: %s", name, plainSyntax(err.Error()))
	}
	if len(document.Content) == 0 {
		return f, fmt.Errorf("%s: is empty; %q writes one to start from", name, program+" init")
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return f, fmt.Errorf("%s: line %d: want keys and values, such as 'model: softmax'", name, root.Line)
	}
	if documents.Decode(new(yaml.Node)) != io.EOF { // else what stands there would be passed over
		return f, fmt.Errorf("%s: a line of --- begins a second document; a file has one job", name)
	}
	var errs []error
	f.walk(root, reflect.TypeFor[trivium.Job](), "", &errs)
	if err := root.Decode(job); err != nil {
		return f, fmt.Errorf("%s: %w", name, err)
	}
	for field := range f.lines {
		g[field] = !f.wrong[field]
	}
	return f, joinByLine(errs)
}

// walk notes the line of each key below node, which should be those of t's fields, takes out those that are not or have no value of the
// field's type, with a report, and writes counts such as full and 2^20 as the numbers that they stand for.
func (f *jobFile) walk(node *yaml.Node, t reflect.Type, prefix string, errs *[]error) {
	fields := map[string]reflect.Type{}
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		fields[name] = t.Field(i).Type
		names = append(names, name)
	}
	pairs := node.Content
	node.Content = nil // again as we go, without repeated keys, at which the decoder would stop
	for i := 0; i+1 < len(pairs); i += 2 {
		key, value := pairs[i], pairs[i+1]
		field := prefix + key.Value
		kind, known := fields[key.Value]
		if !known {
			f.wrong[field] = true
			*errs = append(*errs, fmt.Errorf("%s: line %d: unknown key %q; %s", f.name, key.Line, field, nearest.Sentence(key.Value, names)))
			continue
		}
		if first, twice := f.lines[field]; twice {
			*errs = append(*errs, fmt.Errorf("%s: line %d: %q is there already, on line %d", f.name, key.Line, field, first))
			continue
		}
		f.lines[field] = key.Line
		meant := value
		if value.Kind == yaml.AliasNode { // the decoder gets it as it is: it refuses what contains itself
			meant = value.Alias
		}
		if kind.Kind() == reflect.Struct && meant.Kind == yaml.MappingNode {
			f.walk(meant, kind, field+".", errs)
		} else if misfits := f.misfits(meant, kind, field); len(misfits) > 0 {
			f.wrong[field] = true
			*errs = append(*errs, misfits...)
			continue
		} else if kind.Kind() == reflect.Map {
			for j := 0; j+1 < len(meant.Content); j += 2 {
				f.lines[field+"."+meant.Content[j].Value] = meant.Content[j].Line
			}
		}
		node.Content = append(node.Content, key, value)
	}
}

// misfits says why a field of type t cannot have the value.
func (f *jobFile) misfits(value *yaml.Node, t reflect.Type, field string) (errs []error) {
	if value.ShortTag() == "!!null" && t.Kind() != reflect.Struct { // which the decoder would pass over, as if it were given as 0
		return []error{fmt.Errorf("%s: line %d: %s: it has no value; without the key the default holds", f.name, value.Line, field)}
	}
	if isWhole(t.Kind()) && value.Kind == yaml.ScalarNode {
		if field == "batch" && value.Value == "full" {
			value.Value, value.Tag = strconv.Itoa(trivium.FullBatch), "!!int"
		} else if n, err := parseCount(value.Value); err == nil {
			value.Value, value.Tag = strconv.Itoa(n), "!!int"
		} else if value.ShortTag() == "!!float" { // which the decoder would cut to a whole number
			return []error{fmt.Errorf("%s: line %d: %s: want a whole number, found %s", f.name, value.Line, field, value.Value)}
		} else if strings.Contains(value.Value, "^") {
			return []error{fmt.Errorf("%s: line %d: %s: want a whole number, as a power one of at most %d, such as 2^20; found %s",
				f.name, value.Line, field, math.MaxInt32, value.Value)}
		}
	}
	err := value.Decode(reflect.New(t).Interface())
	if wrong, ok := errors.AsType[*yaml.TypeError](err); ok {
		for _, e := range wrong.Errors {
			line, text, _ := strings.Cut(e, ": ")
			errs = append(errs, fmt.Errorf("%s: %s: %s: %s", f.name, line, field, plainType(text)))
		}
	} else if err != nil {
		errs = append(errs, fmt.Errorf("%s: line %d: %s: %w", f.name, value.Line, field, err))
	}
	return errs
}

func isWhole(k reflect.Kind) bool {
	return k == reflect.Int || k == reflect.Int64 || k == reflect.Uint64
}

// fieldOf is the field that a mistake is in, if it names one: an optimizer's says so aside, and others begin with who says it and the field, as in
// Job.Validate's "job: FIELD: ".
func fieldOf(mistake error) string {
	if m, ok := errors.AsType[interface {
		error
		Field() string
	}](mistake); ok {
		return m.Field()
	}
	_, text, _ := strings.Cut(mistake.Error(), ": ")
	field, _, _ := strings.Cut(text, ":")
	return field
}

// at puts the file and line of the field that a mistake names in front of it, in place of who says it where the field follows.
func (f *jobFile) at(mistake error) error {
	if f == nil {
		return mistake
	}
	field := fieldOf(mistake)
	line, ok := f.line(field)
	if !ok {
		return mistake
	}
	_, text, _ := strings.Cut(mistake.Error(), ": ")
	if strings.HasPrefix(text, field+":") {
		return fmt.Errorf("%s: line %d: %s", f.name, line, text)
	}
	return fmt.Errorf("%s: line %d: %w", f.name, line, mistake)
}

// under is at for a mistake that may name no field: it is in one of those of section, on the section's line.
func (f *jobFile) under(section string, mistake error) error {
	if f == nil {
		return mistake
	}
	if found := f.at(mistake); found != mistake {
		return found
	}
	for flag := range f.flags {
		if strings.HasPrefix(flag, section+".") { // it may be in that
			return mistake
		}
	}
	if line, ok := f.line(section); ok {
		return fmt.Errorf("%s: line %d: %w", f.name, line, mistake)
	}
	return mistake
}

// ofData puts file and line in front of what opening the data found wrong with its description, such as a column that is not there.
func (f *jobFile) ofData(err error) error {
	list, found := each(err), false
	for i, e := range list {
		if mistake, ok := errors.AsType[*data.Error](e); ok {
			if line, ok := f.line("data." + mistake.Field); ok && f.lines["data."+mistake.Field] == line {
				list[i], found = fmt.Errorf("%s: line %d: %w", f.name, line, e), true
			}
		}
	}
	if !found {
		return err
	}
	return misused(joinByLine(list))
}

// line returns the line of field, or of what it stands under, unless a flag says it.
func (f *jobFile) line(field string) (n int, ok bool) {
	if f == nil {
		return 0, false
	}
	for ; field != ""; field = field[:max(0, strings.LastIndexByte(field, '.'))] {
		if f.flags[field] { // an optimizer's parameters are given together
			return 0, false
		}
		if at, there := f.lines[field]; there && !ok {
			n, ok = at, true
		}
	}
	return n, ok
}

// each returns the errors that err joins, and those that these join, or err alone.
func each(err error) (list []error) {
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		list = append(list, each(e)...)
	}
	return list
}

// news leaves out what follows from mistakes that are said already: those in the same field, and in any of section's where one names no field of it.
func (f *jobFile) news(section string, found, said []error) []error {
	var fields []string
	for _, e := range said {
		fields = append(fields, fieldOf(e))
	}
	if f != nil {
		fields = slices.AppendSeq(fields, maps.Keys(f.wrong))
	}
	return slices.DeleteFunc(found, func(e error) bool {
		field := fieldOf(e)
		whole := !strings.HasPrefix(field, section+".")
		return slices.ContainsFunc(fields, func(s string) bool {
			return s == field || whole && (s == section || strings.HasPrefix(s, section+".")) || strings.HasPrefix(field, s+".")
		})
	})
}

// joinByLine joins mistakes in the order of their lines, each sentence once.
func joinByLine(errs []error) error {
	line := func(e error) (n int) {
		_, rest, _ := strings.Cut(e.Error(), ": line ")
		_, _ = fmt.Sscan(strings.TrimSuffix(rest, ":"), &n) // no number: line 0
		if before, _, ok := strings.Cut(rest, ":"); ok {
			_, _ = fmt.Sscan(before, &n)
		}
		return n
	}
	slices.SortStableFunc(errs, func(a, b error) int { return line(a) - line(b) })
	errs = slices.CompactFunc(errs, func(a, b error) bool { return a.Error() == b.Error() })
	return errors.Join(errs...)
}

// plainSyntax says what yaml does not.
func plainSyntax(e string) string {
	return strings.NewReplacer(
		"yaml: ", "", "found character that cannot start any token", "found a character that begins no word, such as a tab (indent with spaces), @ or `",
	).Replace(e)
}

// plainType says in words what yaml says in Go's types.
func plainType(e string) string {
	return strings.NewReplacer(
		"cannot unmarshal !!str", "found the text", "cannot unmarshal !!int", "found the number", "cannot unmarshal !!float", "found the number",
		"cannot unmarshal !!bool", "found", "cannot unmarshal !!map", "found keys", "cannot unmarshal !!seq", "found a list",
		" into int64", ", want a whole number", " into uint64", ", want a whole number of 0 or more", " into int", ", want a whole number",
		" into float64", ", want a number", " into bool", ", want true or false", " into string", ", want a text",
		" into []string", ", want a list such as [a, b]", " into map[string]float64", ", want names with numbers",
		" into trivium.Data", ", want keys such as 'source: ...' below it", " into trivium.OptimizerSpec", ", want keys such as 'name: adam' below it",
		" into trivium.EarlyStop", ", want keys such as 'metric: valid.auc' below it", " into trivium.LastPolicy", ", want keep or drop",
	).Replace(e)
}
