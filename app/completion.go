package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionVerb struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (completionVerb) Help() string {
	return `Try it in the shell at hand:

  bash:  source <(PROGRAM completion bash)
  zsh:   source <(PROGRAM completion zsh)
  fish:  PROGRAM completion fish | source`
}

func (v *completionVerb) Run(s *session) error {
	words, err := s.completions()
	if err != nil {
		return err
	}
	switch v.Shell {
	case "bash":
		s.completeBash(words)
	case "zsh":
		fmt.Fprintf(s.out, "#compdef %s\nautoload -U +X bashcompinit && bashcompinit\n", s.name)
		s.completeBash(words)
	case "fish":
		s.completeFish(words)
	}
	return nil
}

// A completion is what may follow some words.
type completion struct {
	path        string // verbs so far, with spaces; empty: none
	subs, flags []string
	short       map[string]string // flags' letters
	values      []string          // of the first argument
	help        map[string]string
	takes       map[string][]string // flags that a value follows, with those there are, if they are few
}

// flagValues are those of flags that have few, by name, or where a verb has its own, by both.
func (s *session) flagValues() map[string][]string {
	return map[string][]string{
		"topology": topologyNames(), "optimizer": s.optimizerList(), "last": {"keep", "drop"}, "order": {"shuffle", "index"},
		"missing": {"error", "mean", "zero", "drop"}, "scale": {"none", "standard", "minmax"}, "as": {"csv", "jsonl"},
		"format": {"idx", "csv", "libsvm", "jsonl", "npy", "parquet"}, "export format": {"onnx", "safetensors"},
		"merge": {"sum", "mean"}, "optimizer-on": {"server", "worker"}, "consistency": {"bsp", "ssp", "essp", "asp"},
	}
}

// completions walks the grammar.
func (s *session) completions() ([]completion, error) {
	parser, err := s.parser(new(grammar))
	if err != nil {
		return nil, err
	}
	var all []completion
	known := s.flagValues()
	var walk func(n *kong.Node, path string)
	walk = func(n *kong.Node, path string) {
		c := completion{path: path, short: map[string]string{}, help: map[string]string{}, takes: map[string][]string{}}
		takes := n
		if n.DefaultCmd != nil { // what stands for the verb alone
			takes = n.DefaultCmd
		}
		for _, group := range takes.AllFlags(true) {
			for _, f := range group {
				flag := "--" + f.Name
				c.flags = append(c.flags, flag)
				c.help[flag] = f.Help
				if f.Short != 0 {
					c.short[flag] = string(f.Short)
				}
				if f.Tag.Negatable != "" {
					c.flags = append(c.flags, "--no-"+f.Name)
					c.help["--no-"+f.Name] = "Not " + flag + "."
				}
				if !f.IsBool() {
					values, own := known[path+" "+f.Name]
					if !own {
						values = known[f.Name]
					}
					c.takes[flag] = values
					if f.Short != 0 {
						c.takes["-"+string(f.Short)] = values
					}
				}
			}
		}
		for _, child := range n.Children {
			if child.Type == kong.CommandNode && !child.Hidden {
				c.subs = append(c.subs, child.Name)
				c.help[child.Name] = child.Help
			}
		}
		switch path {
		case "train", "init":
			c.values = s.models.Names()
		case "help":
			c.values = slices.Compact(slices.Sorted(slices.Values(append(topicNames(), all[0].subs...))))
		case "completion":
			c.values = []string{"bash", "zsh", "fish"}
		}
		slices.Sort(c.flags)
		all = append(all, c)
		for _, child := range n.Children {
			if child.Type == kong.CommandNode {
				walk(child, strings.TrimSpace(path+" "+child.Name))
			}
		}
	}
	walk(parser.Model.Node, "")
	return all, nil
}

// identifier makes name a shell function's name.
func identifier(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
}

func (s *session) completeBash(words []completion) {
	function := "_" + identifier(s.name)
	fmt.Fprintf(s.out, "%s() {\n\tlocal current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} path= prefix= word\n\tCOMPREPLY=()\n", function)
	fmt.Fprint(s.out, "\tif [[ $current == = ]]; then current=; elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n") // bash parts at =
	fmt.Fprint(s.out, "\tif [[ $current == --*=* ]]; then before=${current%%=*} prefix=${current%%=*}= current=${current#*=}; fi\n")     // zsh does not
	fmt.Fprintf(s.out, "\tfor word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n\t\tcase \"$path $word\" in\n")
	for _, c := range words[1:] {
		parent, last := "", c.path
		if i := strings.LastIndexByte(c.path, ' '); i >= 0 {
			parent, last = c.path[:i], c.path[i+1:]
		}
		fmt.Fprintf(s.out, "\t\t\"%s %s\") path=%q ;;\n", parent, last, c.path)
	}
	fmt.Fprintf(s.out, "\t\tesac\n\tdone\n\tcase \"$path\" in\n")
	for _, c := range words {
		plain := strings.Join(slices.Concat(c.subs, c.values), " ")
		fmt.Fprintf(s.out, "\t%q)\n\t\tcase \"$before\" in\n", c.path)
		var others []string
		for _, flag := range slices.Sorted(maps.Keys(c.takes)) {
			if values := c.takes[flag]; len(values) > 0 {
				fmt.Fprintf(s.out, "\t\t%s) COMPREPLY=($(compgen -P \"$prefix\" -W %q -- \"$current\")); return ;;\n", flag, strings.Join(values, " "))
			} else {
				others = append(others, flag)
			}
		}
		if len(others) > 0 { // a file, perhaps, and nothing of ours
			fmt.Fprintf(s.out, "\t\t%s) return ;;\n", strings.Join(others, "|"))
		}
		fmt.Fprintf(s.out, "\t\tesac\n\t\tif [[ $current == -* ]]; then COMPREPLY=($(compgen -W %q -- \"$current\"))\n", strings.Join(c.flags, " "))
		fmt.Fprintf(s.out, "\t\telse COMPREPLY=($(compgen -W %q -- \"$current\")); fi ;;\n", plain)
	}
	fmt.Fprintf(s.out, "\tesac\n}\ncomplete -o default -F %s %s\n", function, s.name)
}

func (s *session) completeFish(words []completion) {
	quote := func(text string) string {
		return "'" + strings.ReplaceAll(strings.ReplaceAll(text, `\`, `\\`), "'", `\'`) + "'"
	}
	for _, c := range words {
		condition := "__fish_use_subcommand"
		if c.path != "" {
			condition = "__fish_seen_subcommand_from " + strings.ReplaceAll(c.path, " ", "; and __fish_seen_subcommand_from ")
			if len(c.subs) > 0 {
				condition += "; and not __fish_seen_subcommand_from " + strings.Join(c.subs, " ")
			}
		}
		for _, sub := range slices.Concat(c.subs, c.values) {
			fmt.Fprintf(s.out, "complete -c %s -n %s -a %s -d %s\n", s.name, quote(condition), quote(sub), quote(c.help[sub]))
		}
		for _, flag := range c.flags {
			value := ""
			if values, takes := c.takes[flag]; len(values) > 0 {
				value = " -x -a " + quote(strings.Join(values, " "))
			} else if takes {
				value = " -r"
			}
			letter := ""
			if c.short[flag] != "" {
				letter = " -s " + c.short[flag]
			}
			fmt.Fprintf(s.out, "complete -c %s -n %s -l %s%s%s -d %s\n", s.name, quote(condition), strings.TrimPrefix(flag, "--"), letter, value, quote(c.help[flag]))
		}
	}
}
