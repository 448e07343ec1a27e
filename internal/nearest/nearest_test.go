package nearest

import "testing"

func TestName(t *testing.T) {
	names := []string{"sgd", "momentum", "adam", "adamw", "adagrad", "logistic"}
	for want, nearest := range map[string]string{
		"adma": "adam", "adamm": "adam", "Adam": "adam", "sdg": "sgd", "momemtum": "momentum", "logisitc": "logistic",
		"": "", "transformer": "", "xyz": "",
		"mom": "momentum", "LOG": "logistic", "l": "", "ad": "",
	} {
		if got := Name(want, names); got != nearest {
			t.Errorf("Name(%q) = %q, want %q", want, got, nearest)
		}
	}
	if got, want := Sentence("adma", names), `did you mean "adam"?`; got != want {
		t.Errorf("Sentence = %q, want %q", got, want)
	}
	if got := Name("acc", []string{"auc", "accuracy"}); got != "accuracy" {
		t.Errorf("acc begins %q, want accuracy", got)
	}
	if got, want := Sentence("transformer", []string{"b", "a"}), "there are a, b"; got != want {
		t.Errorf("Sentence = %q, want %q", got, want)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "acb", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
