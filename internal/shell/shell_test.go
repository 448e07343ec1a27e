package shell

import "testing"

func TestWords(t *testing.T) {
	for want, words := range map[string][]string{
		"trivium train --resume runs/a-1":     {"trivium", "train", "--resume", "runs/a-1"},
		`'my programs/trivium' 'it'\''s' ''`:  {"my programs/trivium", "it's", ""},
		"train --target '>= 0.9' --set 'a;b'": {"train", "--target", ">= 0.9", "--set", "a;b"},
		"":                                    nil,
	} {
		if got := Words(words...); got != want {
			t.Errorf("%q is written %s, want %s", words, got, want)
		}
	}
}
