package app

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

var update = flag.Bool("update", false, "rewrite docs/cli.md")

// TestManual: docs/cli.md is what the program says of itself.
func TestManual(t *testing.T) {
	t.Setenv("COLUMNS", "120") // kong wraps to it
	want := manual(t, Options{})
	const name = "../docs/cli.md"
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the program says; go test ./app -run TestManual -update rewrites it", name)
	}
}

// TestHelpNamesProgram: a program of another name says so wherever its help has a command to type.
func TestHelpNamesProgram(t *testing.T) {
	own := manual(t, Options{Name: "/opt/mine"})
	for line := range strings.Lines(own) {
		if !strings.HasPrefix(line, "#") && strings.Contains(line, "trivium") { // headings are the manual's
			t.Errorf("the help of a program called mine says: %s", line)
		}
	}
}

func manual(t *testing.T, o Options) string {
	var b strings.Builder
	b.WriteString("# The command line\n\nWritten by the program itself: `go test ./app -run TestManual -update`.\n")
	say := func(title string, args ...string) {
		var out, problems bytes.Buffer
		if code := Run(t.Context(), args, &out, &problems, o); code != Done {
			t.Fatalf("%q exits with %d: %s", args, code, &problems)
		}
		fmt.Fprintf(&b, "\n%s\n\n```\n%s```\n", title, out.String())
	}
	say("## trivium", "--help")
	parser, err := newSession(nil, nil, o).parser(new(grammar))
	if err != nil {
		t.Fatal(err)
	}
	var walk func(n *kong.Node, path []string)
	walk = func(n *kong.Node, path []string) {
		for _, child := range n.Children {
			if child.Type == kong.CommandNode {
				p := append(path[:len(path):len(path)], child.Name)
				say("## trivium "+strings.Join(p, " "), append(p, "--help")...)
				walk(child, p)
			}
		}
	}
	walk(parser.Model.Node, nil)
	b.WriteString("\n# Topics\n")
	for _, name := range topicNames() {
		say("## "+name, "help", name)
	}
	return b.String()
}
