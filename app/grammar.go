package app

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/trivium-ml/trivium"
)

// The grammar of the command line: a verb a field, each with its flags, in the file of its name.
type grammar struct {
	Help helpFlag `short:"h" help:"Say what there is, and stop."`

	Train  trainVerb  `cmd:"" help:"Train a model and save it with all that was measured in a run directory."`
	Eval   evalVerb   `cmd:"" help:"Measure a trained model on data."`
	Apply  applyVerb  `cmd:"" help:"Write a trained model's predictions for data."`
	Export exportVerb `cmd:"" help:"Write a trained model as ONNX or safetensors."`
	Data   dataVerb   `cmd:"" help:"Describe a data source: rows, columns, labels, first problems."`
	Runs   runsVerb   `cmd:"" help:"List, show, compare and delete runs."`
	Rerun  rerunVerb  `cmd:"" help:"Repeat a run and check that it gives the same bits."`
	Up     upVerb     `cmd:"" help:"Start a cluster: the coordinator that machines and jobs come to."`
	Node   nodeVerb   `cmd:"" help:"Lend this machine to a cluster."`
	Status statusVerb `cmd:"" help:"Show a cluster's members and jobs."`
	Cancel cancelVerb `cmd:"" help:"Cancel a job of a cluster."`
	Logs   logsVerb   `cmd:"" help:"Print what a job of a cluster prints."`
	Fetch  fetchVerb  `cmd:"" help:"Fetch the run that a job of a cluster left."`
	Bench  benchVerb  `cmd:"" help:"Measure the links that training would use."`

	Compare compareVerb `cmd:"" help:"Train under every topology, beside the real systems, and report which is fastest."`

	Init       initVerb       `cmd:"" help:"Write a job file with every key explained."`
	Version    versionVerb    `cmd:"" help:"Say what this program is built from."`
	Completion completionVerb `cmd:"" help:"Write a completion script for a shell."`
	Topic      helpVerb       `cmd:"" name:"help" help:"Explain a topic or a verb."`
}

func (s *session) parser(g *grammar) (*kong.Kong, error) {
	parser, err := kong.New(g,
		kong.Name(s.name),
		kong.Description("Trivium trains machine-learning models. Start with: "+s.name+" train softmax"),
		kong.NoDefaultHelp(),
		kong.Writers(s.out, s.err),
		kong.Exit(func(int) {}),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 120}),
		kong.Vars{"models": strings.Join(s.models.Names(), ", "), "optimizers": s.optimizerNames()},
		plainly("a whole number", strconv.Atoi),
		plainly("a whole number of 0 or more", func(text string) (uint64, error) { return strconv.ParseUint(text, 10, 64) }),
		plainly("a number", func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }),
		plainly("a time, such as 100ms or 2s", time.ParseDuration),
	)
	if err != nil {
		return nil, err
	}
	return parser, kong.Visit(parser.Model, func(v kong.Visitable, next kong.Next) error { // the help names the program as topics do
		switch v := v.(type) {
		case *kong.Application:
			v.Detail = s.named(v.Detail)
		case *kong.Node:
			v.Detail = s.named(v.Detail)
			if v.Name == "eval" || v.Name == "apply" {
				hideRead(v.Flags)
			}
		case *kong.Flag:
			v.Help = s.named(v.Help)
		}
		return next(nil)
	})
}

// hideRead leaves those flags out of a verb's help that say how a table is read: of a trained model, its transform does.
func hideRead(flags []*kong.Flag) {
	for _, f := range flags {
		if f.Name == "classes" || f.Group != nil && f.Group.Key == "Tables" {
			f.Hidden = true
		}
	}
}

// plainly reads what a flag of a Go type says, and a mistake in it in words that are not Go's, as the parser's own are.
func plainly[T any](want string, read func(string) (T, error)) kong.Option {
	return kong.TypeMapper(reflect.TypeFor[T](), kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		token, err := ctx.Scan.PopValue(want)
		if err != nil {
			return fmt.Errorf("want %s, found none", want)
		}
		text := fmt.Sprint(token.Value)
		value, err := read(text)
		if err != nil {
			return fmt.Errorf("want %s, found %q", want, text)
		}
		target.Set(reflect.ValueOf(value))
		return nil
	}))
}

// named is a text of help, in which PROGRAM stands for the program's name.
func (s *session) named(text string) string { return strings.ReplaceAll(text, "PROGRAM", s.name) }

// optimizerNames lists what --optimizer takes: those that ship, of a kind side by side, and then the program's own.
func (s *session) optimizerNames() string {
	names := s.optimizerList()
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

func (s *session) optimizerList() []string {
	names := []string{"sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw", "ftrl", "lbfgs"}
	return append(names, slices.Sorted(maps.Keys(s.optimizers))...)
}

// errHelped ends parsing once help is printed.
var errHelped = errors.New("help was asked for")

// helpFlag is kong's own, but ends in an error in place of the process.
type helpFlag bool

func (helpFlag) IgnoreDefault() {}

func (helpFlag) BeforeReset(c *kong.Context) error {
	if err := c.PrintUsage(false); err != nil {
		return err
	}
	return errHelped
}

// rowCount is a flag in rows: a number, or full.
type rowCount int

var _ encoding.TextUnmarshaler = (*rowCount)(nil)

func (r *rowCount) UnmarshalText(text []byte) error {
	if string(text) == "full" {
		*r = trivium.FullBatch
		return nil
	}
	n, err := parseCount(string(text))
	if err != nil || n < 1 {
		return fmt.Errorf("want a number of rows of at least 1, or full; found %q", text)
	}
	*r = rowCount(n)
	return nil
}

// An amount is a flag that says how many: 1 or more. It is 0 where it is left out, which means what the help says, and no other way: of the flags
// only those of a job's fields take 0, as their keys do, and so put back what a file says.
type amount int64

// maxAmount is the largest whole number below which a float64 has every one.
const maxAmount = 1 << 53

func (a *amount) UnmarshalText(text []byte) error {
	var n integer
	if err := n.UnmarshalText(text); err != nil || n > maxAmount {
		return fmt.Errorf("want a whole number from 1 to %d, such as 1000, 1e6 or 2^20; found %q", int64(maxAmount), text)
	}
	if n < 1 {
		return fmt.Errorf("want 1 or more, found %s", text)
	}
	*a = amount(n)
	return nil
}

// An integer is a flag of a job's field that has whole numbers, as a job file reads them; which of them it takes is the job's to say.
type integer int64

func (i *integer) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil { // with an exponent, perhaps
		n, err = parseWhole(string(text), maxAmount)
	}
	if err != nil {
		return fmt.Errorf("want a whole number, such as 1000, 1e6 or 2^20; found %q", text)
	}
	*i = integer(n)
	return nil
}

// count is a flag that also reads powers, such as 2^20.
type count int

func (c *count) UnmarshalText(text []byte) error {
	n, err := parseCount(string(text))
	*c = count(n)
	return err
}

// parameters is a flag that gives numbers by name.
type parameters map[string]float64

func (p *parameters) UnmarshalText(text []byte) error {
	if *p == nil {
		*p = parameters{}
	}
	for part := range strings.SplitSeq(string(text), ";") {
		name, value, ok := strings.Cut(part, "=")
		x, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if !ok || err != nil {
			return fmt.Errorf("want names with numbers, such as beta1=0.9;beta2=0.99; found %q", text)
		}
		(*p)[strings.TrimSpace(name)] = x
	}
	return nil
}

// parseCount reads 1000, 1_000, 1e6 or 2^20: a whole number from 0 to the largest int32.
func parseCount(s string) (int, error) {
	n, err := parseWhole(s, math.MaxInt32)
	return int(n), err
}

func parseWhole(s string, most int64) (int64, error) {
	wrong := fmt.Errorf("want a whole number from 0 to %d, such as 1000, 1e6 or 2^20; found %q", most, s)
	var x float64
	if base, exponent, ok := strings.Cut(s, "^"); ok {
		b, errBase := strconv.Atoi(base)
		e, errExponent := strconv.Atoi(exponent)
		if errBase != nil || errExponent != nil {
			return 0, wrong
		}
		x = math.Pow(float64(b), float64(e))
	} else {
		var err error
		if x, err = strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64); err != nil {
			return 0, wrong
		}
	}
	if x != math.Trunc(x) || x < 0 || x > float64(most) || math.IsNaN(x) {
		return 0, wrong
	}
	return int64(x), nil
}
