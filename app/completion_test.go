package app

import (
	"os/exec"
	"strings"
	"testing"
)

// TestCompletion runs the script in bash, where there is one.
func TestCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash on this machine to complete in")
	}
	dir := t.TempDir()
	script := runIn(t, dir, "completion", "bash").out
	for words, want := range map[string]string{
		"trivium tr":                    "train",
		"trivium train sof":             "softmax",
		"trivium train softmax --epo":   "--epochs",
		"trivium runs s":                "show",
		"trivium runs show --js":        "--json",
		"trivium runs --js":             "--json",
		"trivium compare --est":         "--estimate",
		"trivium help exit":             "exit-codes",
		"trivium completion f":          "fish",
		"trivium eval last --checkpoin": "--checkpoint",
		"trivium train --topology al":   "allreduce",
		"trivium train --topology = se": "server",
		"trivium train --scale =":       "none standard minmax",
		"trivium train --name s":        "",
		"trivium train -o adamw s":      "softmax svm",
		"trivium apply last --as j":     "jsonl",
		"trivium help tra":              "train",
		"trivium data --format pa":      "parquet",
		"trivium export last -f o":      "onnx",
		"trivium train --no-":           "--no-exact",
		"trivium compare --no-f":        "--no-faults",
		"trivium train --optimizer=ad":  "--optimizer=adagrad --optimizer=adam --optimizer=adamw", // as zsh hands it over
	} {
		n := len(strings.Fields(words))
		test := script + "\nCOMP_WORDS=(" + words + ")\nCOMP_CWORD=$((" + string(rune('0'+n)) + "-1))\n_trivium\necho \"${COMPREPLY[*]}\"\n"
		out, err := exec.Command(bash, "-c", test).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%q completes to %q (%v), want %q", words, got, err, want)
		}
	}
	for _, shell := range []string{"zsh", "fish"} {
		if got := runIn(t, dir, "completion", shell); got.code != Done || !strings.Contains(got.out, "train") {
			t.Errorf("%s: exits with %d: %s", shell, got.code, got.err)
		}
	}
}

// TestFishCompletion: a verb below another has its own flags alone, and the upper one none of its own once a lower one is there.
func TestFishCompletion(t *testing.T) {
	script := runIn(t, t.TempDir(), "completion", "fish").out
	const show = `-n '__fish_seen_subcommand_from runs; and __fish_seen_subcommand_from show' -l json `
	for _, want := range []string{
		show, "-n '__fish_seen_subcommand_from runs; and not __fish_seen_subcommand_from list ", "-n '__fish_seen_subcommand_from train' -l data -s d -r ",
		"-n '__fish_use_subcommand' -a 'train' ",
	} {
		if !strings.Contains(script, "complete -c trivium "+want) {
			t.Errorf("no %s", want)
		}
	}
	for line := range strings.Lines(script) {
		if strings.Contains(line, "-n '__fish_seen_subcommand_from show'") {
			t.Errorf("whichever verb show is below: %s", line)
		}
	}
}
