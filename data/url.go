package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/quantity"
)

const (
	urlHeaderWait = 30 * time.Second // for a server to begin its answer
	urlStallWait  = time.Minute      // for more of it
)

// fetched is the files of a description that were URLs, and are on this machine now.
type fetched struct {
	dir   string // temporary; empty: there were none
	from  map[string]string
	notes []string
}

// isURL tells whether a source is to be fetched.
func isURL(text string) bool {
	return strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://")
}

// fetchURLs replaces the URLs of d by files of the same names in a temporary folder, which close removes. With a file of IDX images come
// its labels, which lie beside it by convention.
func fetchURLs(ctx context.Context, d *trivium.Data) (f *fetched, err error) {
	f = &fetched{from: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	for _, field := range []*string{&d.Source, &d.Train, &d.Valid, &d.Test} {
		if !isURL(*field) {
			continue
		}
		from := *field
		u, err := url.Parse(from)
		if err != nil {
			return f, fault(from, "not a URL: %v", err)
		}
		name := path.Base(u.Path)
		if name == "/" || name == "." || strings.HasSuffix(u.Path, "/") {
			return f, fault(from, "the URL names no file: its last part says the format, such as .../train.csv")
		}
		if *field, err = f.fetch(ctx, from, name); err != nil {
			return f, err
		}
		if labels := strings.Replace(name, "-images-idx3-ubyte", "-labels-idx1-ubyte", 1); labels != name {
			u.Path = path.Join(path.Dir(u.Path), labels)
			if _, err := f.fetch(ctx, u.String(), labels); err != nil {
				return f, err
			}
		}
	}
	return f, nil
}

// fetch writes what is at from to a file of that name.
func (f *fetched) fetch(ctx context.Context, from, name string) (file string, err error) {
	if f.dir == "" {
		if f.dir, err = os.MkdirTemp("", "trivium-data-"); err != nil {
			return "", err
		}
	}
	file = filepath.Join(f.dir, name)
	if f.from[file] != "" {
		if f.from[file] == from {
			return file, nil
		}
		return "", fault(from, "another URL of this job ends in %s too", name)
	}
	n, err := download(ctx, from, file)
	if err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fault(from, "%v", err)
	}
	f.from[file] = from
	f.notes = append(f.notes, fmt.Sprintf("%s was fetched: %s", from, quantity.Bytes(n)))
	return file, nil
}

// download writes the body of a GET to a new file.
func download(ctx context.Context, from, file string) (n int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() { // what ended it is a better word than that it was cancelled
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
	}()
	stall := time.AfterFunc(urlHeaderWait, func() { cancel(fmt.Errorf("no answer in %v", urlHeaderWait)) })
	defer stall.Stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return 0, err
	}
	// The file is wanted as it lies there: one that is stored compressed, and said to be, would come unpacked under the name of a packed one.
	r.Header.Set("Accept-Encoding", "identity")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, unwrapURL(err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the server answers %s", a.Status)
	}
	w, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(w, &watched{a.Body, stall})
	if err = errors.Join(err, w.Close()); err != nil {
		return n, fmt.Errorf("after %s: %w", quantity.Bytes(n), err)
	}
	return n, nil
}

// unwrapURL is a client's error without the method and the URL, which our message already has.
func unwrapURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// A watched reader winds the clock that gives its source up.
type watched struct {
	io.Reader
	stall *time.Timer
}

func (w *watched) Read(p []byte) (int, error) {
	w.stall.Reset(urlStallWait)
	return w.Reader.Read(p)
}

// close removes the files.
func (f *fetched) close() error {
	if f == nil || f.dir == "" {
		return nil
	}
	return os.RemoveAll(f.dir)
}

// name makes an error about fetched files one about their URLs.
func (f *fetched) name(err error) error {
	type several interface {
		error
		Unwrap() []error
	}
	if s, ok := errors.AsType[several](err); ok {
		for _, one := range s.Unwrap() {
			_ = f.name(one)
		}
	} else if e, ok := errors.AsType[*Error](err); ok {
		e.File, e.Msg = f.words(e.File), f.words(e.Msg)
	}
	return err
}

// words are text in which fetched files are called by their URLs.
func (f *fetched) words(text string) string {
	files := slices.Sorted(maps.Keys(f.from))
	for _, file := range slices.Backward(files) { // a name that begins with another one goes first
		text = strings.ReplaceAll(text, file, f.from[file])
	}
	return text
}

// rename puts URLs into texts that were written of fetched files.
func (f *fetched) rename(texts []string) {
	for i := range texts {
		texts[i] = f.words(texts[i])
	}
}
