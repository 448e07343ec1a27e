// Package app is the command line as a package: every verb of trivium, for a program with models, data sources, optimizers and metrics of
// its own.
//
//	func main() {
//		models := nn.Standard()
//		models["mine"] = mine
//		app.Main(app.Options{Models: models, Sources: data.Sources{"readings": readings}, Optimizers: optim.Optimizers{"lion": lion}})
//	}
//
// There is one file per verb. [Run] is a whole invocation as a function, for tests and for programs that embed it; [Main] is Run on
// the process's own arguments, streams and signals.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/internal/nearest"
	"github.com/trivium-ml/trivium/metric"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/optim"
)

// Options say what the program knows beside the verbs.
type Options struct {
	Models     nn.Models        // by name; nil: those of nn.Standard
	Sources    data.Sources     // by name, beside the generators and the files that data reads by itself
	Optimizers optim.Optimizers // by name, beside those that ship
	Metrics    metric.Metrics   // by name, beside those that ship
	Name       string           // of the program, as a user types it; empty: trivium, and for Main the name it was started by
}

// Exit codes. 5 belongs to budgets, which this version does not have.
const (
	Done        = 0
	Failed      = 1 // internal, or the disk's
	Misused     = 2 // usage, configuration or input
	Lost        = 3 // a worker process, a machine or the coordinator that the command depends on ended, or does not answer
	Diverged    = 4 // the loss is not finite any more
	Interrupted = 6 // by a signal; it can be resumed
)

// Main runs the command line of this process and exits with its code. SIGINT, SIGTERM or, unless it is ignored (nohup), SIGHUP ends a training
// after the step at hand, with a checkpoint; a second one of the first two, half a second later or more, ends the process at once.
//
// The worker processes of a job are this program too: Main is where they begin, so that a program should do little before it.
func Main(o Options) {
	if code, ok := Child(o); ok {
		os.Exit(code)
	}
	if o.Name == "" {
		o.Name = os.Args[0]
		if strings.Contains(o.Name, "go-build") { // go run: a path that is gone afterwards
			o.Name = filepath.Base(o.Name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, asking()...)
	stop := func() {
		signal.Ignore(syscall.SIGPIPE) // what reads our output may be gone by the same signal, and what is to be saved is not lost for words
		cancel()
	}
	go heed(signals, stop, func() {
		fmt.Fprintf(os.Stderr, "%s: ended at once, by a second signal: what was not saved is lost\n", o.Name)
		os.Exit(Interrupted)
	})
	os.Exit(Run(ctx, os.Args[1:], os.Stdout, os.Stderr, o))
}

// asking are the signals that ask this process to end. A hangup is one, as of a terminal that is closed, unless who started it has it ignored.
func asking() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// sameWish is for how long after a signal others say the same once more: timeout(1) signals a command and then its process group, which the
// command is in, and a program that started this one may hand on a Ctrl-C that the terminal has sent to both.
const sameWish = 500 * time.Millisecond

// heed calls cancel at the first signal, and end at one that comes sameWish later or more: not at a hangup, which shells and the system send as
// they see fit, and nobody because it takes long.
func heed(signals <-chan os.Signal, cancel, end func()) {
	<-signals
	cancel()
	for first := time.Now(); ; {
		if s := <-signals; s != syscall.SIGHUP && time.Since(first) >= sameWish {
			end()
			return
		}
	}
}

// Run is one invocation: args without the program's name. It returns the exit code.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer, o Options) int {
	out := &output{w: stdout}
	s := newSession(out, stderr, o)
	err := out.complete(s.run(ctx, args))
	if err == nil {
		return Done
	}
	code := Failed
	var coded *codedError
	if errors.As(err, &coded) {
		code = coded.code
	}
	// Whatever it was about to do: a source that was not read to its end is no mistake in it. What has another code says more.
	if ctx.Err() != nil && errors.Is(err, context.Canceled) && (coded == nil || code == Misused) {
		code, err = Interrupted, errors.New("interrupted")
	}
	if text := err.Error(); text != "" {
		for line := range strings.Lines(text) {
			fmt.Fprintf(stderr, "%s: %s\n", s.name, strings.TrimRight(line, "\n"))
		}
	}
	return code
}

// A session is one invocation's surroundings, handed to the verbs.
type session struct {
	out, err   io.Writer
	models     nn.Models
	sources    data.Sources
	optimizers optim.Optimizers
	metrics    metric.Metrics
	name       string   // of the program in messages
	command    string   // of the program in commands to type
	typed      []string // the whole command
	budget     int64    // bytes of memory for the rows of a file; 0: as many as this machine has for them
}

func newSession(out, err io.Writer, o Options) *session {
	if o.Models == nil {
		o.Models = nn.Standard()
	}
	if o.Name == "" {
		o.Name = "trivium"
	}
	name := strings.TrimSuffix(filepath.Base(o.Name), ".exe")
	return &session{
		out: out, err: err, models: o.Models, sources: o.Sources, optimizers: o.Optimizers, metrics: o.Metrics, name: name, command: o.Name,
	}
}

func (s *session) run(ctx context.Context, args []string) error {
	s.typed = append([]string{s.command}, args...)
	parser, err := s.parser(new(grammar))
	if err != nil {
		return err
	}
	switch {
	case len(args) == 0:
		args = []string{"--help"}
	case len(args) == 1 && args[0] == "--version": // as of most programs
		args = []string{"version"}
	}
	parsed, err := parser.Parse(joinNegative(args))
	if errors.Is(err, errHelped) {
		return nil
	}
	if err != nil {
		return misused(fmt.Errorf("%w (%s)", parsing(err), s.hint(err)))
	}
	if err := checkFolders(parsed); err != nil {
		return err
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	return parsed.Run(s)
}

// parsing is the parser's error; where a flag has no value, which it says in words of its own, in those of this program, and of a word that is near
// to a verb with that verb.
func parsing(err error) error {
	if verb := meant(err); verb != "" {
		return fmt.Errorf("%w, did you mean %q?", err, verb)
	}
	flag, rest, _ := strings.Cut(err.Error(), ": expected ")
	_, got, none := strings.Cut(rest, " value but got ")
	switch {
	case !none:
		return err
	case strings.HasPrefix(got, `"EOL"`):
		return fmt.Errorf("%s: want a value, found none", flag)
	}
	other, _, _ := strings.Cut(strings.TrimPrefix(got, `"`), `"`)
	return fmt.Errorf("%s: want a value, found the flag %s (a value like that is written %s=%[2]s)", flag, other, flag)
}

// meant is the verb that an unexpected word is near to, where the verb before it does without one, as `compare` does: the parser takes that for
// given, and looks no further. Empty: there is none.
func meant(err error) string {
	var parse *kong.ParseError
	word, unexpected := strings.CutPrefix(err.Error(), "unexpected argument ")
	if !unexpected || !errors.As(err, &parse) {
		return ""
	}
	for _, p := range slices.Backward(parse.Context.Path) {
		if p.Command == nil || p.Command.DefaultCmd == nil {
			continue
		}
		var verbs []string
		for _, child := range p.Command.Children {
			verbs = append(verbs, child.Name)
		}
		return nearest.Name(word, verbs)
	}
	return ""
}

// checkFolders refuses an --out or --dir without a name, as where a script's variable is not set: some verbs would take it for the folder at hand,
// others for one that is not there.
func checkFolders(parsed *kong.Context) error {
	for _, p := range parsed.Path {
		if f := p.Flag; f != nil && (f.Name == "out" || f.Name == "dir") && parsed.FlagValue(f) == "" {
			return misusedf("--%s: want the name of a folder, or . for the one at hand; found none", f.Name)
		}
	}
	return nil
}

// joinNegative writes a long flag and the negative number after it as one word, since the parser takes the number for a flag, which none is.
func joinNegative(args []string) (joined []string) {
	for i, a := range args {
		negative := len(a) > 1 && a[0] == '-' && strings.IndexByte(".0123456789", a[1]) >= 0
		if negative && i > 0 && len(args[i-1]) > 2 && strings.HasPrefix(args[i-1], "--") && !strings.Contains(args[i-1], "=") {
			joined[len(joined)-1] += "=" + a
		} else {
			joined = append(joined, a)
		}
	}
	return joined
}

// hint says which help fits a mistake on the command line.
func (s *session) hint(err error) string {
	verb := ""
	var parse *kong.ParseError
	if errors.As(err, &parse) {
		for _, p := range parse.Context.Path {
			if p.Command != nil {
				verb += " " + p.Command.Name
			}
		}
	}
	return fmt.Sprintf("%s%s --help has the flags", s.name, verb)
}

// A codedError is an error with the exit code that it means.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// misused marks an error as the user's to mend: usage, configuration or input.
func misused(err error) error {
	if err == nil {
		return nil
	}
	return &codedError{Misused, err}
}

// misconfigured is misused, but for what the disk refuses, and what has a code already: there the command may be as it should.
func misconfigured(err error) error {
	for _, refuses := range []error{syscall.ENOSPC, syscall.EROFS, syscall.EIO, fs.ErrPermission} {
		if errors.Is(err, refuses) {
			return err
		}
	}
	if _, coded := errors.AsType[*codedError](err); coded {
		return err
	}
	return misused(err)
}

// misusedf is misused for a sentence of its own.
func misusedf(format string, args ...any) error { return misused(fmt.Errorf(format, args...)) }
