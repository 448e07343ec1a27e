package data

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestFormatsByContents: what begins with a byte order mark, a comment or a query's number is known too, and a time of day is no index.
func TestFormatsByContents(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"JSON behind a byte order mark": {"\xef\xbb\xbf{\"label\":1,\"a\":2}\n", "jsonl"},
		"libsvm with queries":           {"1 qid:3 1:0.5\n", "libsvm"},
		"libsvm behind comments":        {"# written by\n\n#Column indices\n1 1:0.5\n", "libsvm"},
		"CSV behind a comment":          {"#id,label\n1,2\n", "csv"},
		"a time of day":                 {"2020-01-01 12:30,5\n", "csv"},
		"comments alone":                {"# one\n# two\n", ""},
	} {
		if got := sniff(bytesFile(name, []byte(c.text))); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestFolderOfAFormat: --format takes in what names do not say; where they do, a note beside the data is no data.
func TestFolderOfAFormat(t *testing.T) {
	const text = "1 1:1\n0 1:2\n"
	for name, c := range map[string]struct {
		files       []string
		train, test string
	}{
		"one that says":        {[]string{"a.libsvm", "README"}, "a.libsvm", ""},
		"none that says":       {[]string{"a.txt"}, "a.txt", ""},
		"splits by name":       {[]string{"train.txt", "test.txt"}, "train.txt", "test.txt"},
		"one says, one trains": {[]string{"test.libsvm", "train.txt", "README"}, "train.txt", "test.libsvm"},
	} {
		dir := t.TempDir()
		for _, file := range c.files {
			write(t, dir, file, []byte(text))
		}
		l, err := locate(dir, "libsvm")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if base := func(p string) string { return strings.TrimPrefix(filepath.Base(p), ".") }; base(l.train) != c.train || base(l.test) != c.test {
			t.Errorf("%s: trains on %q, tests on %q", name, l.train, l.test)
		}
	}
}
