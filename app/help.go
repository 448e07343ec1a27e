package app

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/internal/nearest"
)

//go:embed help/*.txt
var topics embed.FS

type helpVerb struct {
	Topic []string `arg:"" optional:"" help:"A topic or a verb; without it, a list."`
}

func (v *helpVerb) Run(s *session) error {
	if len(v.Topic) == 0 {
		fmt.Fprintf(s.out, "%s --help lists the verbs, %s VERB --help the flags of one. Topics:\n\n", s.name, s.name)
		for _, name := range topicNames() {
			title, _, err := topic(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(s.out, "  %-12s %s\n", name, title)
		}
		return nil
	}
	name := v.Topic[0]
	if title, text, err := topic(name); err == nil && len(v.Topic) == 1 {
		fmt.Fprintf(s.out, "%s\n\n%s", title, s.named(text))
		switch own := slices.Sorted(maps.Keys(s.optimizers)); {
		case name == "models":
			fmt.Fprintf(s.out, "\nThis program's models: %s\n", strings.Join(s.models.Names(), ", "))
		case name == "optimizers" && len(own) > 0:
			fmt.Fprintf(s.out, "\nThis program's own optimizers: %s\n", strings.Join(own, ", "))
		case name == "metrics" && len(s.metrics) > 0:
			fmt.Fprintf(s.out, "\nThis program's own metrics: %s\n", strings.Join(slices.Sorted(maps.Keys(s.metrics)), ", "))
		}
		return nil
	}
	parser, err := s.parser(new(grammar))
	if err != nil {
		return err
	}
	var verbs []string
	for _, child := range parser.Model.Children {
		verbs = append(verbs, child.Name)
		if child.Name == name {
			if _, err := parser.Parse(append(v.Topic, "--help")); err != nil && !errors.Is(err, errHelped) {
				return misused(err)
			}
			return nil
		}
	}
	if slices.Contains(topicNames(), name) {
		return misusedf("help: one topic or verb at a time: found %q", strings.Join(v.Topic, " "))
	}
	return misusedf("help: no topic or verb %q; %s", name, nearest.Sentence(name, slices.Compact(slices.Sorted(slices.Values(append(topicNames(), verbs...))))))
}

// topicNames lists the topics, sorted.
func topicNames() (names []string) {
	files, err := fs.Glob(topics, "help/*.txt")
	if err != nil {
		return nil // the pattern is a constant
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(f, "help/"), ".txt"))
	}
	return names
}

// topic returns a topic's first line and the rest.
func topic(name string) (title, text string, err error) {
	p, err := topics.ReadFile("help/" + name + ".txt")
	if err != nil {
		return "", "", err
	}
	title, text, _ = strings.Cut(string(p), "\n")
	return title, strings.TrimLeft(text, "\n"), nil
}
