package sim_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a pure machine may not use, by package. An empty list means the whole package.
var impure = map[string][]string{
	"time":         {"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"},
	"math/rand":    {},
	"math/rand/v2": {},
	"crypto/rand":  {},
	"os":           {},
	"net":          {"Dial", "DialTimeout", "Dialer", "Listen", "ListenConfig", "ListenPacket", "LookupHost", "LookupAddr", "LookupIP", "Interfaces", "InterfaceAddrs"},
	"sync":         {},
	"sync/atomic":  {},
	"log":          {},
	"log/slog":     {},
	"context":      {},
	"runtime":      {},
}

// TestPureMachines parses the files listed in pure.txt and refuses what makes a machine depend on more than its events.
func TestPureMachines(t *testing.T) {
	text, err := os.ReadFile("pure.txt")
	if err != nil {
		t.Fatal(err)
	}
	byDir := map[string][]string{}
	allowed := map[string]string{} // by file: a part of what is otherwise wrong
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		file, exception, _ := strings.Cut(line, " ")
		if exception != "" {
			what, reason, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(exception), "allow "), ": ")
			if !ok || reason == "" {
				t.Errorf("pure.txt: %q: want a file, or a file, allow, what the test says, a colon, and the reason", line)
			}
			allowed[file] = what
		}
		byDir[path.Dir(file)] = append(byDir[path.Dir(file)], path.Base(file))
	}
	for dir, files := range byDir {
		t.Run(dir, func(t *testing.T) {
			for _, wrong := range inspect(t, filepath.Join("..", filepath.FromSlash(dir)), files) {
				file, _, _ := strings.Cut(wrong, ":")
				if what := allowed[dir+"/"+path.Base(filepath.ToSlash(file))]; what == "" || !strings.Contains(wrong, what) {
					t.Error(wrong)
				}
			}
		})
	}
}

// inspect returns what is wrong in the files of a directory, all of whose files are parsed in order to know types.
func inspect(t *testing.T, dir string, files []string) (wrong []string) {
	t.Helper()
	set := token.NewFileSet()
	all, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var parsed []*ast.File
	var listed []*ast.File
	for _, name := range all {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
		if slices.Contains(files, filepath.Base(name)) {
			listed = append(listed, f)
		}
	}
	if len(listed) != len(files) {
		t.Fatalf("%s: of %v, only %d exist", dir, files, len(listed))
	}
	// Types come from this directory alone: what is imported stays unknown, so that nothing has to be built. A range over a value of an
	// unknown type is allowed only where its form tells that it is no map.
	info := types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{Importer: nothing{importer.Default()}, Error: func(error) {}, FakeImportC: true}
	_, _ = config.Check(dir, set, parsed, &info)
	for _, f := range listed {
		wrong = append(wrong, walk(set, f, &info)...)
	}
	return wrong
}

// nothing imports empty packages.
type nothing struct{ types.Importer }

func (nothing) Import(name string) (*types.Package, error) {
	p := types.NewPackage(name, path.Base(name))
	p.MarkComplete()
	return p, nil
}

func walk(set *token.FileSet, f *ast.File, info *types.Info) (wrong []string) {
	say := func(n ast.Node, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%v: a pure machine %s", set.Position(n.Pos()), fmt.Sprintf(format, args...)))
	}
	imported := map[string]string{}
	for _, spec := range f.Imports {
		name := strings.Trim(spec.Path.Value, `"`)
		names, known := impure[name]
		if known && len(names) == 0 {
			say(spec, "imports %s", name)
		}
		as := path.Base(name)
		if spec.Name != nil {
			as = spec.Name.Name
		}
		imported[as] = name
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			say(n, "starts a goroutine")
		case *ast.SelectStmt:
			say(n, "selects")
		case *ast.ChanType:
			say(n, "has a channel")
		case *ast.SendStmt:
			say(n, "sends on a channel")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				say(n, "receives from a channel")
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && slices.Contains(impure[imported[x.Name]], n.Sel.Name) {
				say(n, "calls %s.%s", x.Name, n.Sel.Name)
			}
			if x, ok := n.X.(*ast.Ident); ok && imported[x.Name] == "maps" && n.Sel.Name != "Clone" && n.Sel.Name != "Copy" && !sorted(f, n) {
				say(n, "walks over a map: maps.%s without slices.Sorted around it", n.Sel.Name)
			}
		case *ast.RangeStmt:
			if t := info.Types[n.X].Type; t != nil {
				if _, isMap := t.Underlying().(*types.Map); isMap && !collects(f, n) {
					say(n, "walks over a map")
				}
			}
		}
		return true
	})
	return wrong
}

// collects says whether the loop does nothing but append, in a function that sorts afterwards.
func collects(f *ast.File, loop *ast.RangeStmt) (sorts bool) {
	if len(loop.Body.List) != 1 {
		return false
	}
	assign, ok := loop.Body.List[0].(*ast.AssignStmt)
	if !ok || len(assign.Rhs) != 1 {
		return false
	}
	call, ok := assign.Rhs[0].(*ast.CallExpr)
	if !ok {
		return false
	}
	if fun, ok := call.Fun.(*ast.Ident); !ok || fun.Name != "append" {
		return false
	}
	for _, d := range f.Decls {
		if d.Pos() > loop.Pos() || loop.End() > d.End() {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || call.Pos() < loop.End() {
				return true
			}
			if fun, ok := call.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(fun.Sel.Name, "Sort") {
				sorts = true
			}
			return true
		})
	}
	return sorts
}

// sorted says whether the selector stands in a call of slices.Sorted or SortedFunc.
func sorted(f *ast.File, at ast.Node) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if fun, ok := call.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(fun.Sel.Name, "Sorted") && call.Pos() <= at.Pos() && at.End() <= call.End() {
			found = true
		}
		return true
	})
	return found
}

func TestPureFindsEachMistake(t *testing.T) {
	for want, code := range map[string]string{
		"starts a goroutine":       `func f() { go f() }`,
		"selects":                  `func f() { select {} }`,
		"has a channel":            `var c chan int`,
		"calls time.Now":           `import "time"; var x = time.Now()`,
		"imports math/rand":        `import "math/rand"; var x = rand.Int()`,
		"walks over a map":         `type s struct { m map[int]int }; func f(x *s) { for range x.m {} }`,
		"walks over a map; ":       `func f(m map[int]int) (k []int) { for i := range m { k = append(k, i) }; return k }`,
		"walks over a map: maps.K": `import "maps"; func f(m map[int]int) { for range maps.Keys(m) {} }`,
		"": `import ("maps"; "slices"; "time")
			func f(m map[int]int, d time.Duration) { for range slices.Sorted(maps.Keys(m)) {} }
			func g(m map[int]int) (k []int) { for i := range m { k = append(k, i) }; slices.Sort(k); return k }`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "m.go"), []byte("package m\n"+code), 0o600); err != nil {
			t.Fatal(err)
		}
		wrong := inspect(t, dir, []string{"m.go"})
		if want == "" && len(wrong) > 0 || want != "" && (len(wrong) == 0 || !strings.Contains(wrong[0], strings.TrimSuffix(want, "; "))) {
			t.Errorf("%s: found %q, want %q", code, wrong, want)
		}
	}
}
