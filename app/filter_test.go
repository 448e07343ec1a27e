package app

import (
	"strings"
	"testing"
)

func TestFilter(t *testing.T) {
	run := map[string]string{"model": "mlp:128,32", "test.accuracy": "0.9431", "status": "finished", "epochs": "10", "data.source": "my file", "seed": "18446744073709551615"}
	for text, want := range map[string]bool{
		"":                                         true,
		"model=mlp:128,32":                         true,
		"model=softmax":                            false,
		"model~mlp":                                true,
		"test.accuracy>0.9":                        true,
		"test.accuracy >= 0.9431":                  true,
		"test.accuracy<0.9":                        false,
		"epochs=10.0":                              true, // as numbers
		"epochs!=10":                               false,
		"model~mlp and test.accuracy>0.95":         false,
		"model~mlp or test.accuracy>0.95":          true,
		"not status=finished":                      false,
		"status==finished":                         true,
		"epochs=1 or epochs=2 or epochs=10":        true,
		"epochs=10 or epochs=1 and epochs=2":       true, // and binds closer
		"(epochs=10 or epochs=1) and epochs=2":     false,
		`data.source="my file"`:                    true,
		"not (model=softmax or test.accuracy<0.5)": true,
		"seed=18446744073709551615":                true,
		"seed=18446744073709551614":                false, // the same float64
		"seed>18446744073709551614":                true,
		"seed=+18446744073709551615":               true,
	} {
		f, err := parseFilter(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := f.holds(run); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}

func TestFilterMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"model":                  `after "model" want =`,
		"model=":                 "want a value",
		"model=a and":            "a condition is missing at the end",
		"(model=a":               "bracket is not closed",
		"model=a epochs=3":       `"epochs" is left over`,
		"test.acuracy>0.9":       `did you mean "test.accuracy"?`,
		"model softmax":          "want =",
		"accuracy>0.9":           "; there are test.accuracy",
		"epochs.total=3":         "; runs show prints those of a run",
		"test.accuracy => 0.9 (": "left over",
		"test.accuracy<high":     `after "test.accuracy<" want a number, found "high"`,
	} {
		f, err := parseFilter(text)
		if err == nil {
			err = f.mistaken([]map[string]string{{"model": "a", "test.accuracy": "1"}})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add("model=softmax and (test.accuracy>0.9 or not status='x y')")
	f.Add("!!=(a~")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1000 {
			return
		}
		if p, err := parseFilter(text); err == nil {
			p.holds(map[string]string{"a": "1"})
		}
	})
}
