package compare

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// An Effort is what a row asks of its user: lines of code to write, and processes to start.
type Effort struct {
	System    string `json:"system"`
	Lines     int    `json:"lines"`                 // of the program, and of what it imports of a like one, without blank lines and comments
	NoCount   string `json:"not_counted,omitempty"` // why Lines is 0
	Processes string `json:"processes"`
	Command   string `json:"command,omitempty"` // where no program is needed
}

// efforts counts them: of peers from the programs in compare/peers.
func efforts(systems []System) (list []Effort) {
	for _, s := range systems {
		switch x := s.(type) {
		case *peer:
			e := Effort{System: x.Name(), NoCount: x.NoCount}
			if x.dir == nil { // its program is not among ours
				continue
			}
			files := slices.Concat(x.row.Program, x.row.Counts)
			if e.NoCount != "" {
				files = nil
			}
			for _, word := range files {
				if p, err := fs.ReadFile(x.dir, path.Join(x.folder, word)); err == nil {
					e.Lines += codeLines(p)
				}
			}
			var words []string
			for _, role := range []Role{SchedulerRole, ServerRole, WorkerRole} {
				switch n := x.row.Roles[string(role)].(type) {
				case float64:
					words = append(words, fmt.Sprintf("%v %s", n, role))
				case string:
					if n == "servers" {
						words = append(words, fmt.Sprintf("1 %s", role))
					} else {
						words = append(words, fmt.Sprintf("N %ss", role))
					}
				}
			}
			e.Processes = strings.Join(words, ", ")
			list = append(list, e)
		case *own:
			command := "trivium train MODEL"
			if !x.alone {
				command += " --topology " + x.topology + " --workers N --processes"
			}
			if x.flags != "" {
				command += " " + x.flags
			}
			if x.whole {
				command += " --rate N×RATE"
			}
			list = append(list, Effort{System: x.Name(), Processes: "1, which starts the others", Command: command})
		}
	}
	return list
}

// codeLines are those of a Python program that are neither blank nor comment: strings that stand alone are comments.
func codeLines(p []byte) (n int) {
	quote := ""
	for line := range bytes.Lines(p) {
		text := strings.TrimSpace(string(line))
		if quote != "" {
			if strings.Contains(text, quote) {
				quote = ""
			}
			continue
		}
		if text == "" || text[0] == '#' {
			continue
		}
		for _, q := range []string{`"""`, `'''`} {
			if rest, ok := strings.CutPrefix(text, q); ok {
				if !strings.Contains(rest, q) {
					quote = q
				}
				text = ""
				break
			}
		}
		if text != "" {
			n++
		}
	}
	return n
}
