package trivium_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const modulePath = "github.com/trivium-ml/trivium"

// An arrowList is a line of imports.txt: what one package may import.
type arrowList struct {
	inside, outside []string
}

// TestImports keeps the arrows of imports.txt. It parses the sources itself, in this process: what it reads is then part of the
// test's cache key, so that a change in any package runs it again.
func TestImports(t *testing.T) {
	text, err := os.ReadFile("imports.txt")
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := parseArrows(string(text))
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := checkArrows(os.DirFS("."), allowed)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

// parseArrows reads the format that the head of imports.txt describes.
func parseArrows(text string) (map[string]arrowList, error) {
	lists := map[string]arrowList{}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		inside, outside, _ := strings.Cut(line, "|")
		words := strings.Fields(inside)
		if len(words) == 0 {
			continue
		}
		if _, ok := lists[words[0]]; ok {
			return nil, fmt.Errorf("imports.txt: line %d: a second line for %s", i+1, words[0])
		}
		lists[words[0]] = arrowList{words[1:], strings.Fields(outside)}
	}
	return lists, nil
}

// checkArrows returns a sentence for each import that allowed does not have, each package without a line, and each line without a
// package.
func checkArrows(tree fs.FS, allowed map[string]arrowList) (wrong []string, err error) {
	seen := map[string]bool{"tests": true}
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return intoFolder(tree, name, entry)
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		folder := path.Dir(name)
		list, ok := allowed[folder]
		if !ok && !seen[folder] {
			wrong = append(wrong, fmt.Sprintf("%s: imports.txt has no line for this package", folder))
		}
		seen[folder] = true
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if why := refuse(target, folder, list, allowed["tests"], strings.HasSuffix(name, "_test.go")); why != "" {
				wrong = append(wrong, fmt.Sprintf("%s imports %s: %s", name, target, why))
			}
		}
		return nil
	})
	for folder := range allowed {
		if !seen[folder] {
			wrong = append(wrong, fmt.Sprintf("%s: a line of imports.txt, but no such package", folder))
		}
	}
	slices.Sort(wrong)
	return wrong, err
}

// intoFolder skips what the go command skips: hidden folders, testdata, and modules of their own.
func intoFolder(tree fs.FS, name string, entry fs.DirEntry) error {
	if name == "." {
		return nil
	}
	if b := entry.Name(); b[0] == '.' || b[0] == '_' || b == "testdata" {
		return filepath.SkipDir
	}
	if _, err := fs.Stat(tree, path.Join(name, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

// refuse says why an import is not allowed, or nothing.
func refuse(target, folder string, list, tests arrowList, test bool) string {
	if target == modulePath || strings.HasPrefix(target, modulePath+"/") {
		inside := strings.TrimPrefix(strings.TrimPrefix(target, modulePath), "/")
		if inside == "" {
			inside = "."
		}
		if slices.Contains(list.inside, inside) || test && (inside != "app" || inside == folder) {
			return ""
		}
		return "imports.txt has no such arrow"
	}
	if first, _, _ := strings.Cut(target, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	within := func(modules []string) bool {
		return slices.ContainsFunc(modules, func(m string) bool { return target == m || strings.HasPrefix(target, m+"/") })
	}
	if within(list.outside) || test && within(tests.outside) {
		return ""
	}
	return "imports.txt does not let this package use that module"
}

func TestImportsAreRefused(t *testing.T) {
	list := arrowList{inside: []string{"tensor"}, outside: []string{"golang.org/x/sys"}}
	tests := arrowList{outside: []string{"pgregory.net/rapid"}}
	for _, c := range []struct {
		target string
		test   bool
		want   bool
	}{
		{"fmt", false, true},
		{"encoding/json", false, true},
		{modulePath, false, false},
		{modulePath + "/tensor", false, true},
		{modulePath + "/tensor/kernel", false, false},
		{modulePath + "/tensor/kernel", true, true},
		{modulePath + "/app", true, false},
		{"golang.org/x/sys/cpu", false, true},
		{"golang.org/x/system", false, false},
		{"pgregory.net/rapid", false, false},
		{"pgregory.net/rapid", true, true},
	} {
		if why := refuse(c.target, "nn", list, tests, c.test); (why == "") != c.want {
			t.Errorf("%s (test file %t): %q, want allowed %t", c.target, c.test, why, c.want)
		}
	}
}
