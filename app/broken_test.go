package app

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestBrokenRunFiles: a run.json or result.json that was cut off, or edited by hand, is named with what is wrong and what can be done, and what the
// run's checkpoints hold is not lost by it.
func TestBrokenRunFiles(t *testing.T) {
	dir := t.TempDir()
	if got := runIn(t, dir, strings.Fields("train softmax --rows 300 --epochs 1 --name a")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	for name, key := range map[string]string{"run.json": "model", "result.json": "reason"} {
		file := filepath.Join(dir, "runs", "a", name)
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		edited := regexp.MustCompile(`"`+key+`": "[a-z]+"`).ReplaceAllString(string(whole), `"`+key+`": 7`)
		for text, why := range map[string]string{
			"":                         "it is empty",
			string(whole[:100]):        "it ends in the middle, after 100 bytes",
			string(whole[:9]) + "\x00": "it is no JSON: ",
			"\x1f\x8b\x00rest":         "it is no JSON: ",
			"null":                     "it holds no JSON object",
			"[1]":                      "it holds no JSON object",
			`{"name":"a"}`:             "it has no ",
			`{"version":null}`:         "it has no ",
			edited:                     `its "` + key + `" cannot be 7: `,
			strings.Replace(string(whole), "{", `{"`+key+`":7,`, 1): "it has keys twice: ",
		} {
			if testing.Short() && text != "" && text != edited {
				continue // all in the full run
			}
			write(t, filepath.Join(dir, "runs", "a"), name, text)
			want := "rundir: runs/a/" + name + ": " + why
			for _, c := range []struct {
				command           string
				ofHead, ofResult  int
				silentOfTheResult bool
			}{
				{command: "runs"},
				{command: "runs show a", ofHead: Misused},
				{command: "runs diff a a", ofHead: Misused},
				{command: "rerun a", ofHead: Misused, ofResult: Misused},
				{command: "eval a", silentOfTheResult: true},
				{command: "train --resume a --epochs 2 --name more", silentOfTheResult: true},
			} {
				code, said := c.ofResult, !c.silentOfTheResult
				if name == "run.json" {
					code, said = c.ofHead, true
				}
				got := runIn(t, dir, strings.Fields(c.command)...)
				if got.code != code || strings.Contains(got.err, want) != said || strings.Contains(got.err, "Go ") {
					t.Errorf("%s of %.20q: %s exits with %d, want %d and %v: %s\n%s", name, text, c.command, got.code, code, said, want, got.err)
				}
			}
			if got := runIn(t, dir, "runs", "delete", "more"); got.code != Done {
				t.Errorf("%s of %.20q: nothing was trained: %s", name, text, got.err)
			}
		}
		write(t, filepath.Join(dir, "runs", "a"), name, string(whole))
	}
	write(t, filepath.Join(dir, "runs", "a"), "result.json", "")
	if got := runIn(t, dir, strings.Fields("train --resume runs/a --name again")...); got.code != Done || !strings.Contains(got.out, "finished  test.accuracy ") {
		t.Errorf("what a lost result is advised: exits with %d: %s%s", got.code, got.out, got.err)
	}
	if got := runIn(t, dir, "runs", "a"); got.code != Misused || !strings.HasSuffix(got.err, "; the run of that name is shown by: runs show a\n") {
		t.Errorf("a run in place of a condition: exits with %d: %s", got.code, got.err)
	}
}

// TestRerunOfEdited: what a run.json says of the job and its topology is named with the file, where it cannot be repeated.
func TestRerunOfEdited(t *testing.T) {
	dir := t.TempDir()
	if got := runIn(t, dir, strings.Fields("train softmax --rows 300 --epochs 1 --workers 2 --topology server --name a")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, "runs", "a", "run.json"))
	if err != nil {
		t.Fatal(err)
	}
	for old, edited := range map[string]string{`"epochs": 1`: `"epochs": "one"`, `"rows": 300`: `"rows": 301`, `"staleness": 3`: `"staleness": "three"`, `"strategy": "server"`: `"strategy": "serve"`} {
		write(t, filepath.Join(dir, "runs", "a"), "run.json", strings.Replace(string(whole), old, edited, 1))
		got := runIn(t, dir, "rerun", "a")
		if got.code != Misused || !strings.HasPrefix(got.err, "trivium: rerun: runs/a/run.json: ") || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%s: exits with %d: %s", edited, got.code, got.err)
		}
	}
	write(t, filepath.Join(dir, "runs", "a"), "run.json", `{"version": 1}`)
	if got := runIn(t, dir, "runs", "show", "a"); got.code != Done || strings.Contains(got.out, "started") {
		t.Errorf("a begin that is not known is shown: exits with %d: %s%s", got.code, got.out, got.err)
	}
}
