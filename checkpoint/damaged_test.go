package checkpoint_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
)

// TestFileThatIsGone: a checkpoint that lacks a file is a damaged one, which names the one before it, and not none.
func TestFileThatIsGone(t *testing.T) {
	for _, file := range []string{"params.safetensors", "optimizer.safetensors", "codecs.safetensors"} {
		dir := t.TempDir()
		s, c := blob.Dir(dir), example(t)
		save(t, s, c)
		c.Progress.Step++
		name := save(t, s, c)
		if err := os.Remove(filepath.Join(dir, name, file)); err != nil {
			t.Fatal(err)
		}
		_, _, err := checkpoint.Latest(ctx, s)
		corrupt, ok := errors.AsType[*checkpoint.CorruptError](err)
		if !ok || corrupt.File != file || corrupt.Previous != "step-000000000120" || !strings.Contains(err.Error(), "is not there") {
			t.Errorf("without %s: %v", file, err)
		}
		if errors.Is(err, fs.ErrNotExist) {
			t.Errorf("without %s it says that there is no checkpoint: %v", file, err)
		}
	}
}

// TestManifestsRefused: what a manifest with a good checksum says is believed only if it can be so.
func TestManifestsRefused(t *testing.T) {
	dir := t.TempDir()
	c := example(t)
	c.Job.Seed = 1 // a float64 holds it
	name := save(t, blob.Dir(dir), c)
	whole, err := os.ReadFile(filepath.Join(dir, name, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	file := func(m object, i int) object { return m["files"].([]any)[i].(object) }
	for want, spoil := range map[string]func(m object){
		"":                                   func(object) {},
		`found "trivium checkpoint" version`: func(m object) { m["version"] = 2 },
		`found "checkpoint" version 1`:       func(m object) { m["format"] = "checkpoint" },
		"layout_hash is ":                    func(m object) { m["layout_hash"] = "0" },
		"more than fit the":                  func(m object) { m["layout"].([]any)[0].(object)["shape"] = []int{1 << 20, 2} },
		"too large, or negative":             func(m object) { m["layout"].([]any)[0].(object)["shape"] = []int{-3, 2} },
		"size -1":                            func(m object) { file(m, 1)["size"] = -1 },
		"size 70368744177665":                func(m object) { file(m, 1)["size"] = 1<<46 + 1 },
		`SHA-256 "ab"`:                       func(m object) { file(m, 1)["sha256"] = "ab" },
		"is none of a checkpoint's":          func(m object) { file(m, 1)["name"] = "../../params" },
		"names no params.safetensors":        func(m object) { m["files"] = m["files"].([]any)[1:] },
	} {
		var m object
		if err := json.Unmarshal(whole, &m); err != nil {
			t.Fatal(err)
		}
		sum := m["checksum"]
		delete(m, "checksum")
		spoil(m)
		p, err := json.MarshalIndent(m, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		p = append(bytes.TrimSuffix(p, []byte("\n}")), []byte(",\n\t\"checksum\": \""+sum.(string)+"\"\n}\n")...)
		_, _, err = checkpoint.DecodeManifest(checkpoint.Reseal(p))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestPreviousIsBefore: in the place of a damaged checkpoint the newest whole one before it is named, not one that came after it.
func TestPreviousIsBefore(t *testing.T) {
	dir := t.TempDir()
	s, c := blob.Dir(dir), example(t)
	var names []string
	for range 3 {
		names = append(names, save(t, s, c))
		c.Progress.Step++
	}
	for i, want := range []string{"", names[0], names[1]} {
		params := filepath.Join(dir, names[i], "params.safetensors")
		whole, err := os.ReadFile(params)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(params, whole[:len(whole)-1], 0o644); err != nil {
			t.Fatal(err)
		}
		_, err = checkpoint.Load(ctx, s, names[i])
		if corrupt, ok := errors.AsType[*checkpoint.CorruptError](err); !ok || corrupt.Previous != want {
			t.Errorf("without %s: %v, want %q named", names[i], err, want)
		}
		if err := os.WriteFile(params, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestManyStateVectors: as many as no optimizer has are refused, before there is memory for them.
func TestManyStateVectors(t *testing.T) {
	for n, whole := range map[int]bool{2001: true, 2002: false} {
		c := example(t)
		c.Codecs, c.Optimizer = nil, &checkpoint.OptimizerState{}
		slot := make([]float32, c.Params.Layout.Len())
		for i := range n {
			c.Optimizer.Names = append(c.Optimizer.Names, fmt.Sprintf("slot%d", i))
			c.Optimizer.Slots = append(c.Optimizer.Slots, slot)
		}
		s := blob.Dir(t.TempDir())
		_, err := checkpoint.Load(ctx, s, save(t, s, c))
		if (err == nil) != whole || err != nil && !strings.Contains(err.Error(), "2002 state vectors") {
			t.Errorf("%d state vectors: %v", n, err)
		}
	}
}

// TestRowStepsRefused: a row has been updated as often as a uint32 holds, whatever a file with a good checksum says.
func TestRowStepsRefused(t *testing.T) {
	for _, n := range []int64{1 << 32, -1, math.MinInt64} {
		dir := t.TempDir()
		name := save(t, blob.Dir(dir), example(t)) // in which one was updated so often
		optimizer, manifest := filepath.Join(dir, name, "optimizer.safetensors"), filepath.Join(dir, name, "manifest.json")
		p, err := os.ReadFile(optimizer)
		m, readErr := os.ReadFile(manifest)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		most := binary.LittleEndian.AppendUint64(nil, math.MaxUint32)
		if bytes.Count(p, most) != 1 {
			t.Fatalf("the most updates are %d times in the file", bytes.Count(p, most))
		}
		q := bytes.Replace(p, most, binary.LittleEndian.AppendUint64(nil, uint64(n)), 1)
		m = bytes.Replace(m, fmt.Appendf(nil, "%x", sha256.Sum256(p)), fmt.Appendf(nil, "%x", sha256.Sum256(q)), 1)
		if err := errors.Join(os.WriteFile(optimizer, q, 0o644), os.WriteFile(manifest, checkpoint.Reseal(m), 0o644)); err != nil {
			t.Fatal(err)
		}
		if _, err := checkpoint.Load(ctx, blob.Dir(dir), name); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("row 2 has %d updates", n)) {
			t.Errorf("%d updates of a row: %v", n, err)
		}
	}
}
