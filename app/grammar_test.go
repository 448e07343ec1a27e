package app

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

// TestNoneOfSomething: 0 is given to no flag that says how many, but to those of a job's fields, whose keys take it as well.
func TestNoneOfSomething(t *testing.T) {
	parser, err := newSession(nil, nil, Options{}).parser(new(grammar))
	if err != nil {
		t.Fatal(err)
	}
	amounts := 0
	err = kong.Visit(parser.Model, func(v kong.Visitable, next kong.Next) error {
		f, ok := v.(*kong.Flag)
		if !ok {
			return next(nil)
		}
		of := f.Target.Type()
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		group := ""
		if f.Group != nil {
			group = f.Group.Key
		}
		ofJob := slices.Contains([]string{"Data", "Tables", "Training", "Optimizer", "Early stop"}, group)
		number := slices.Contains([]reflect.Kind{reflect.Int, reflect.Int64, reflect.Uint64}, of.Kind()) && of != reflect.TypeFor[time.Duration]()
		switch {
		case of == reflect.TypeFor[amount]():
			amounts++
		case number && !ofJob:
			t.Errorf("--%s is a %v: it takes 0, or has a check of its own", f.Name, of)
		}
		return next(nil)
	})
	if err != nil || amounts < 10 {
		t.Errorf("%d flags say how many: %v", amounts, err)
	}
	whole := func(n string) string {
		return fmt.Sprintf("want a whole number from 1 to 9007199254740992, such as 1000, 1e6 or 2^20; found %q", n)
	}
	for n, want := range map[string]string{
		"0": "want 1 or more, found 0", "-1": "want 1 or more, found -1",
		"1.5": whole("1.5"), "many": whole("many"), "10x": whole("10x"), "-1.5": whole("-1.5"),
		"9007199254740993": whole("9007199254740993"), "99999999999999999999": whole("99999999999999999999"), "1e30": whole("1e30"),
	} {
		var a amount
		if err := a.UnmarshalText([]byte(n)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", n, err, want)
		}
	}
	for _, flag := range []string{"--every", "--accumulate", "--checkpoint-every", "--threads", "--clocks", "--steps-per-round"} {
		for n, want := range map[string]string{"0": "want 1 or more, found 0 ", "1.5": whole("1.5")} {
			got := runIn(t, t.TempDir(), "train", "softmax", flag, n)
			if want := "trivium: " + flag + ": " + want; got.code != Misused || !strings.HasPrefix(got.err, want) {
				t.Errorf("%s %s: exits with %d: %s", flag, n, got.code, got.err)
			}
		}
	}
}

// TestPutBack: a job's flag of 0 puts a key's default in the place of what a file says.
func TestPutBack(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "job.yaml", "model: softmax\ndata: {source: digits, rows: 300}\nepochs: 2\nbatch: 100\nsteps: 1\n")
	for name, c := range map[string]struct {
		flags string
		want  int64
	}{"file": {"", 1}, "back": {"--steps 0", 6}} {
		got := runIn(t, dir, strings.Fields("train -f job.yaml --name "+name+" "+c.flags)...)
		if got.code != Done {
			t.Fatalf("exits with %d: %s", got.code, got.err)
		}
		if r, err := findRun(filepath.Join(dir, "runs"), name); err != nil || r.Result.Steps != c.want {
			t.Errorf("%q: %v, %+v, want %d updates", c.flags, err, r, c.want)
		}
	}
}

func TestJoinNegative(t *testing.T) {
	for typed, want := range map[string]string{
		"train --rate -0.5 -b 3":    "train|--rate=-0.5|-b|3",
		"train --rate=1 -5":         "train|--rate=1|-5",
		"train --exact --rows 3 -q": "train|--exact|--rows|3|-q",
		"train -- -5":               "train|--|-5",
		"x --a - --b -.5":           "x|--a|-|--b=-.5",
		"":                          "",
	} {
		if got := strings.Join(joinNegative(strings.Fields(typed)), "|"); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}

// TestIntegers: the flags of a job's whole numbers read them as its file does.
func TestIntegers(t *testing.T) {
	for text, want := range map[string]int64{"1000": 1000, "1e3": 1000, "2^10": 1024, "1_000": 1000, "-3": -3, "9007199254740993": 9007199254740993, "0": 0} {
		var i integer
		if err := i.UnmarshalText([]byte(text)); err != nil || int64(i) != want {
			t.Errorf("%q: %d, %v, want %d", text, i, err, want)
		}
	}
	for _, text := range []string{"", "x", "1.5", "1e-1", "--3", "9223372036854775808"} {
		if err := new(integer).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is a whole number", text)
		}
	}
	if got := runIn(t, t.TempDir(), "train", "softmax", "--epochs", "ten"); got.code != Misused || !strings.Contains(got.err, `--epochs: want a whole number, such as 1000, 1e6 or 2^20; found "ten"`) {
		t.Errorf("exits with %d: %s", got.code, got.err)
	}
}

// TestPlainWords: what a flag of numbers or times wants is said in words that are not Go's.
func TestPlainWords(t *testing.T) {
	dir := t.TempDir()
	for args, want := range map[string]string{
		"train softmax --rate fast":      `--rate: want a number, found "fast"`,
		"train softmax --seed -1":        `--seed: want a whole number of 0 or more, found "-1"`,
		"train softmax --seed":           "--seed: want a whole number of 0 or more, found none",
		"train softmax --data":           "--data: want a value, found none",
		"train softmax -d --rate 0.1":    "--data: want a value, found the flag --rate (a value like that is written --data=--rate)",
		"train --epochs":                 "--epochs: want a value, found none",
		"compare --workers 2,three":      `--workers: want a whole number, found "three"`,
		"compare --seconds 1s":           `--seconds: want a number, found "1s"`,
		"bench net --for soon":           `--for: want a time, such as 100ms or 2s, found "soon"`,
		"bench net --for 1":              `--for: want a time, such as 100ms or 2s, found "1"`,
		"compare --quick --workers 2.5":  `--workers: want a whole number, found "2.5"`,
		"train softmax --clip-norm=much": `--clip-norm: want a number, found "much"`,
	} {
		got := runIn(t, dir, strings.Fields(args)...)
		if got.code != Misused || !strings.Contains(got.err, want) || strings.Contains(got.err, "expected a") {
			t.Errorf("%s exits with %d: %s; want %q", args, got.code, got.err, want)
		}
	}
}
