// Command types checks, from their sources alone, that packages and their tests fit together on the platform that GOOS and GOARCH name:
//
//	types PATTERN...
//
// A compiler would make code of all that they import, which takes ten times as long; here of other modules' functions only the
// declarations are read.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	found, err := check(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "types:", err)
		os.Exit(2)
	}
	if found > 0 {
		os.Exit(1)
	}
}

// check prints what is wrong with the packages of those patterns, in the module of the working directory, and counts it.
func check(patterns []string) (found int, err error) {
	where, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return 0, fmt.Errorf("go env: %w", err)
	}
	others := strings.Split(strings.TrimSpace(string(where)), "\n")
	ofOthers := func(name string) bool {
		return slices.ContainsFunc(others, func(dir string) bool { return strings.HasPrefix(name, dir+string(filepath.Separator)) })
	}
	list, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax, Tests: true,
		ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
			file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
			if file != nil && ofOthers(name) {
				withoutBodies(file)
			}
			return file, err
		},
	}, patterns...)
	if err != nil {
		return 0, err
	}
	if len(list) == 0 {
		return 0, fmt.Errorf("%v: no packages", patterns)
	}
	seen := map[string]bool{} // a package is there once more for its tests
	for _, p := range list {
		if strings.HasSuffix(p.ID, ".test") {
			continue // a test's main function, which the go command writes
		}
		for _, e := range p.Errors {
			if text := e.Error(); !seen[text] {
				seen[text] = true
				fmt.Println(text)
			}
		}
	}
	return len(seen), nil
}

func withoutBodies(file *ast.File) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
}
