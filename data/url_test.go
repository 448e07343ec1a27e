package data

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
)

// TestURL reads a table and a pair of IDX files from a server, and says of a broken one where it came from.
func TestURL(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("people.csv", "age,label\n30,yes\n40,no\n50,yes\n60,no\n70,yes\n")
	write("broken.csv", "age,label\n30,yes\nold,no\n")
	write("t10k-images-idx3-ubyte", string([]byte{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3, 4}))
	write("t10k-labels-idx1-ubyte", string([]byte{0, 0, 8, 1, 0, 0, 0, 2, 0, 1}))
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()

	s, err := Open(t.Context(), trivium.Data{Source: server.URL + "/people.csv", Train: "0:3", Test: "3:"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Train.Rows() != 3 || s.Test.Rows() != 2 || len(s.Notes) == 0 || !strings.Contains(s.Notes[0], "/people.csv was fetched") {
		t.Errorf("%d and %d rows, notes %q", s.Train.Rows(), s.Test.Rows(), s.Notes)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s, err = Open(t.Context(), trivium.Data{Source: server.URL + "/t10k-images-idx3-ubyte", Train: "0:1", Test: "1:"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Train.Rows() != 1 || s.Schema().Labels.Width != 2 {
		t.Errorf("%d rows of %d classes", s.Train.Rows(), s.Schema().Labels.Width)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	d, err := Describe(t.Context(), trivium.Data{Source: server.URL + "/people.csv"}, Options{})
	if err != nil || d.Rows != 5 || d.Source != server.URL+"/people.csv" {
		t.Errorf("described as %+v, %v", d, err)
	}
	for source, want := range map[string]string{
		"/broken.csv": "/broken.csv: line 3", "/absent.csv": "404", "/": "names no file",
	} {
		if _, err := Open(t.Context(), trivium.Data{Source: server.URL + source}, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", source, err, want)
		}
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "trivium-data-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("files stay behind: %v, %v", left, err)
	}
}

// TestURLNames: whatever is said of a fetched file calls it by its URL; where it lay is gone.
func TestURLNames(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	write(t, dir, "a.csv", []byte("age,city\n30,1\n,2\n50,3\n60,4\n70,5\n"))
	write(t, dir, "a.csv.b.csv", []byte("age,city\n30,1\n,2\n"))
	write(t, dir, "bad.csv", []byte("label,age\n1,30\n0,old\n"))
	write(t, dir, "a.libsvm", []byte("1 1:2\n0 2:1\n"))
	write(t, dir, "t-images-idx3-ubyte", []byte{0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2})
	write(t, dir, "t-labels-idx1-ubyte", []byte{0, 0, 8, 1, 0, 0, 0, 1, 1})
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	said := func(what string, texts []string, want string) {
		t.Helper()
		text := strings.Join(texts, "\n")
		if strings.Contains(text, os.TempDir()) || !strings.Contains(text, server.URL+want) {
			t.Errorf("%s: %s; want %s%s in it", what, text, server.URL, want)
		}
	}
	d := trivium.Data{Source: server.URL + "/a.csv", Test: server.URL + "/a.csv.b.csv", Missing: "drop"}
	s := open(t, d, Options{})
	said("notes", s.Notes, "/a.csv is the label")
	said("cautions", s.Cautions, "/a.csv: 1 of 5 rows lack values")
	said("cautions", s.Cautions, "/a.csv.b.csv: 1 of 2 rows lack values")
	said("notes of a look", describe(t, trivium.Data{Source: d.Source}).Notes, "/a.csv is the label")
	bad := describe(t, trivium.Data{Source: server.URL + "/bad.csv", Columns: 3})
	if bad.ProblemCount != 2 {
		t.Fatalf("%v", bad.Problems)
	}
	said("a mistake", []string{bad.Problems[0].Error()}, "/bad.csv has its own")
	said("a mistake in a row", []string{bad.Problems[1].Error()}, "/bad.csv: line 3")
	said("a label", []string{describe(t, trivium.Data{Source: server.URL + "/t-images-idx3-ubyte"}).Label}, "/t-labels-idx1-ubyte")
	_, err := Open(t.Context(), trivium.Data{Source: server.URL + "/a.libsvm", Drop: []string{"x"}, Label: "y"}, Options{})
	said("errors", []string{fmt.Sprint(err)}, "/a.libsvm is a libsvm file")
}

// TestURLStoredCompressed: a file that is stored compressed, and sent with a word about it, is as good as one without.
func TestURLStoredCompressed(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		if _, err := w.Write(gz([]byte("age,label\n30,yes\n40,no\n"))); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	for _, name := range []string{"/people.csv.gz", "/people.csv"} {
		s := open(t, trivium.Data{Source: server.URL + name, Label: "label", Train: ":"}, Options{})
		if s.Train.Rows() != 2 {
			t.Errorf("%s: %d rows", name, s.Train.Rows())
		}
	}
}
