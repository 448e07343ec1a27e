package data

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium"
)

// A location is where the files of a source lie.
type location struct {
	dir                string // of a folder
	train, valid, test string // files; train is the main one
	notes              []string
}

// relative finds a file that the job names: as it is, else in the source's folder.
func (l *location) relative(path string) string {
	if _, err := os.Stat(path); err == nil || path == "" || l.dir == "" || filepath.IsAbs(path) {
		return path
	}
	if inside := filepath.Join(l.dir, path); inside != path {
		if _, err := os.Stat(inside); err == nil {
			return inside
		}
	}
	return path
}

// locate finds the files of a source: a file, or a folder with a train file, and perhaps a valid and a test file, or with one file.
func locate(source, format string) (*location, error) {
	info, err := os.Stat(source)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			e := fault(source, "there is no such file or folder, and no source of that name (there are %s)", strings.Join(generatorNames(), ", "))
			switch {
			case strings.Contains(source, "://"):
				e.Msg += "; of URLs, those of http and https are read"
			case strings.ContainsAny(source, "*?["):
				e.Msg += "; a pattern is not read: name one file, with the rows of all"
			}
			return nil, e
		}
		return nil, fault(source, "%s", reason(err))
	}
	if !info.IsDir() {
		return &location{dir: filepath.Dir(source), train: source}, nil
	}
	entries, err := os.ReadDir(source)
	if err != nil {
		return nil, fault(source, "%s", reason(err))
	}
	var named, others []string
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		switch f := formatOf(e.Name()); {
		case f != "" && (format == "" || f == format):
			named = append(named, e.Name())
		case f == "" && format != "" && roleOf(e.Name()) != "": // what its name does not say, the format does
			named = append(named, e.Name())
		case f == "" && format != "":
			others = append(others, e.Name())
		}
	}
	if len(named) == 0 {
		named = others
	}
	return locateIn(source, named)
}

func generatorNames() []string {
	var names []string
	for name := range Generators() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// locateIn gives the files of a folder their roles.
func locateIn(dir string, names []string) (*location, error) {
	l := &location{dir: dir}
	var rest []string
	for _, name := range names {
		if isLabels(name, names) {
			continue // it goes with another file
		}
		var at *string
		switch roleOf(name) {
		case "train":
			at = &l.train
		case "valid":
			at = &l.valid
		case "test":
			at = &l.test
		default:
			rest = append(rest, name)
			continue
		}
		if *at != "" {
			return nil, fault(dir, "%s and %s could both be for %s; name one", filepath.Base(*at), name, roleOf(name))
		}
		*at = filepath.Join(dir, name)
	}
	switch {
	case l.train != "":
		return l, nil
	case len(rest) == 1:
		l.train = filepath.Join(dir, rest[0])
		return l, nil
	case len(rest) == 0 && (l.test == "") != (l.valid == ""):
		// A lone file that is called test, such as the t10k pair of MNIST: it is all there is.
		l.train, l.test, l.valid = l.test+l.valid, "", ""
		l.notes = append(l.notes, fmt.Sprintf("%s has no training file; rows of %s are cut into training and test", dir, filepath.Base(l.train)))
		return l, nil
	case len(rest) == 0 && l.test != "":
		return nil, fault(dir, "%s and %s are there, and no file to train on; call one train, or name it", filepath.Base(l.valid), filepath.Base(l.test))
	case len(rest) == 0:
		return nil, fault(dir, "no data file is in this folder; want .csv, .libsvm, .jsonl, .npy, .parquet or IDX files, plain or .gz")
	}
	return nil, fault(dir, "%d files could be the data: %s; name one, or call them train and test", len(rest), listNames(rest))
}

// roleOf reads a split from a file's name.
func roleOf(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9') })
	for _, w := range words {
		switch w {
		case "train", "training":
			return "train"
		case "valid", "validation", "val", "dev":
			return "valid"
		case "test", "testing", "t10k":
			return "test"
		}
	}
	return ""
}

// formatOf reads a file's format from its name; empty: the name does not say.
func formatOf(name string) string {
	name = strings.TrimSuffix(strings.ToLower(filepath.Base(name)), ".gz")
	if strings.HasSuffix(name, "-ubyte") || strings.HasSuffix(name, ".idx") {
		return "idx"
	}
	switch filepath.Ext(name) {
	case ".csv", ".tsv":
		return "csv"
	case ".libsvm", ".svm", ".svmlight":
		return "libsvm"
	case ".jsonl", ".ndjson":
		return "jsonl"
	case ".npy":
		return "npy"
	case ".parquet", ".pq":
		return "parquet"
	}
	return ""
}

// sniff reads a file's format from its first bytes; empty: they do not say.
func sniff(f *file) string {
	head, err := f.read(nil, 0, min(f.size, 4096))
	if err != nil {
		return ""
	}
	line, rest, _ := bytes.Cut(bytes.TrimLeft(bytes.TrimPrefix(head, utf8Mark), " \t\r\n"), []byte{'\n'})
	row := line
	for len(row) > 0 && row[0] == '#' { // of libsvm a comment
		row, rest, _ = bytes.Cut(bytes.TrimLeft(rest, " \t\r\n"), []byte{'\n'})
	}
	switch {
	case bytes.HasPrefix(head, []byte(npyMagic)):
		return "npy"
	case bytes.HasPrefix(head, []byte("PAR1")):
		return "parquet"
	case len(head) > 3 && head[0] == 0 && head[1] == 0 && idxTypes[head[2]] != "":
		return "idx"
	case len(line) > 0 && line[0] == '{', bytes.HasPrefix(line, []byte("[{")): // the reader says what is wrong with an array
		return "jsonl"
	case isSparse(row):
		return "libsvm"
	case bytes.ContainsAny(line, ",;\t") && !bytes.ContainsRune(head, 0):
		return "csv"
	}
	return ""
}

// isSparse reports whether a line is one of libsvm: its second word is an index with a number, or a query's.
func isSparse(line []byte) bool {
	_, rest := nextToken(line)
	word, _ := nextToken(rest)
	index, value, _ := bytes.Cut(word, []byte{':'})
	_, isIndex := parseNumber(index)
	_, isNumber := parseNumber(value)
	return isNumber && (isIndex || string(index) == "qid")
}

// labelPairs are words of a data file's name and of its labels' file.
var labelPairs = [][2]string{{"images", "labels"}, {"idx3", "idx1"}, {"features", "labels"}, {"x", "y"}, {"X", "y"}, {"X", "Y"}, {"data", "labels"}}

// partners returns the names that the labels' file of a data file may have.
func partners(name string) []string {
	var out []string
	plain := strings.TrimSuffix(name, ".gz")
	if formatOf(name) == "idx" {
		p := strings.NewReplacer("images", "labels", "idx3", "idx1").Replace(plain)
		out = []string{p, p + ".gz"}
	} else if formatOf(name) == "npy" {
		for _, pair := range labelPairs {
			if p := replaceWord(plain, pair[0], pair[1]); p != plain {
				out = append(out, p, p+".gz")
			}
		}
	}
	return slices.DeleteFunc(out, func(p string) bool { return p == name || p == plain })
}

// replaceWord replaces a word between other characters than letters and digits.
func replaceWord(s, word, by string) string {
	letter := func(i int) bool {
		if i < 0 || i >= len(s) {
			return false
		}
		c := s[i]
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	for i := 0; i+len(word) <= len(s); i++ {
		if s[i:i+len(word)] == word && !letter(i-1) && !letter(i+len(word)) {
			return s[:i] + by + s[i+len(word):]
		}
	}
	return s
}

// isLabels reports whether a file holds the labels of another.
func isLabels(name string, all []string) bool {
	for _, other := range all {
		if other != name && slices.Contains(partners(other), name) {
			return true
		}
	}
	return false
}

const formatNames = "idx, csv, libsvm, jsonl, npy, parquet"

// openRowFile opens one file, and the file of its labels if the format has one.
func openRowFile(path string, d *trivium.Data) (rowFile, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	r, err := decodeFile(f, d)
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return r, nil
}

func decodeFile(f *file, d *trivium.Data) (rowFile, error) {
	format := d.Format
	if format == "" {
		format = formatOf(f.name)
	}
	if format == "" {
		format = sniff(f)
	}
	switch format {
	case "idx":
		x, err := openIDX(f, false)
		if err != nil {
			return nil, err
		}
		return openPair(x, func(l *file) (*array, error) { return openIDX(l, true) })
	case "npy":
		x, err := openNPY(f)
		if err != nil {
			return nil, err
		}
		return openNPYRows(x)
	case "libsvm":
		return notNil(openLibsvm(f))
	case "csv":
		return newTable(openCSV(f))
	case "jsonl":
		return newTable(openJSONL(f))
	case "parquet":
		return newTable(openParquet(f))
	case "":
		return nil, fault(f.name, "neither the name nor the contents say what format it has; say so with --format (%s)", formatNames)
	}
	return nil, setting("format", "there is no format %q; want one of %s", format, formatNames)
}

// notNil keeps a nil pointer from becoming an interface that is not nil.
func notNil(s *sparseFile, err error) (rowFile, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func newTable[R tableReader](r R, err error) (rowFile, error) {
	if err != nil {
		return nil, err
	}
	return &tableFile{tableReader: r}, nil
}

// openPair opens the labels that go with x, if they are there.
func openPair(x *array, open func(*file) (*array, error)) (rowFile, error) {
	dir, name := filepath.Split(x.f.name)
	for _, p := range partners(name) {
		path := filepath.Join(dir, p)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		l, err := openFile(path)
		if err != nil {
			return nil, err
		}
		y, err := open(l)
		if err == nil {
			var a *arrayFile
			if a, err = newArrayFile(x, y); err == nil {
				return a, nil
			}
		}
		return nil, errors.Join(err, l.close())
	}
	a, err := newArrayFile(x, nil)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// openNPYRows takes an array with a file of labels for what it is, and a matrix without one for a table.
func openNPYRows(x *array) (rowFile, error) {
	a, err := openPair(x, func(l *file) (*array, error) {
		y, err := openNPY(l)
		if err == nil && y.rowLen() != 1 {
			return nil, fault(l.name, "want one label a row, found rows of shape %v", y.shape)
		}
		return y, err
	})
	if pair, ok := a.(*arrayFile); ok && err == nil && pair.y == nil && len(x.shape) == 1 {
		return &tableFile{tableReader: &matrixFile{array: x, crc: pair.crc}}, nil
	}
	return a, err
}
