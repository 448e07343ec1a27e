package rundir

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/coding"
)

// stepsBytes returns a steps file of n blocks and what is in it.
func stepsBytes(n int) ([]byte, []observe.Step) {
	_, steps, _ := record(rand.New(rand.NewPCG(5, 6)), n)
	var p []byte
	for i := range steps {
		p = appendBlock(p, coding.EncodeSteps(0, steps[i:i+1]))
	}
	return p, steps
}

func scanSteps(t *testing.T, p []byte) (steps []observe.Step, damage []Damage) {
	var good int64
	damage, err := scan("steps", bytes.NewReader(p), int64(len(p)), func(payload []byte) (bool, error) {
		var err error
		var one []observe.Step
		if one, _, err = coding.DecodeSteps(nil, payload); err != nil {
			return true, err
		}
		good += int64(len(payload)) + blockHead
		steps = append(steps, one...)
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range damage {
		good += d.Bytes
	}
	if good != int64(len(p)) {
		t.Fatalf("blocks and damage are %d of %d bytes", good, len(p))
	}
	return steps, damage
}

// FuzzCase11Crash kills an append at any byte, after whatever else was in the file: a prefix comes back.
func FuzzCase11Crash(f *testing.F) {
	whole, want := stepsBytes(20)
	f.Add(uint16(0))
	f.Add(uint16(17))
	f.Add(uint16(len(whole)))
	f.Fuzz(func(t *testing.T, cut uint16) {
		p := whole[:min(int(cut), len(whole))]
		got, damage := scanSteps(t, p)
		if len(got) > 0 && !reflect.DeepEqual(got, want[:len(got)]) || len(damage) > 1 {
			t.Fatalf("cut at %d: %d steps that are no prefix, damage %v", cut, len(got), damage)
		}
	})
}

// FuzzDamage overwrites a stretch of a file: the blocks outside of it all come back.
func FuzzDamage(f *testing.F) {
	whole, want := stepsBytes(20)
	f.Add(uint16(100), []byte("damage"))
	f.Add(uint16(0), []byte{0})
	f.Add(uint16(300), append(bytes.Clone(marker), 0xff, 0xff, 0, 0))
	f.Fuzz(func(t *testing.T, at uint16, junk []byte) {
		p := bytes.Clone(whole)
		begin := min(int(at), len(p))
		end := begin + copy(p[begin:], junk)
		got, _ := scanSteps(t, p)
		var outside []observe.Step
		offset := 0
		for i := range want {
			next := offset + len(appendBlock(nil, coding.EncodeSteps(0, want[i:i+1])))
			if next <= begin || offset >= end {
				outside = append(outside, want[i])
			}
			offset = next
		}
		i := 0
		for _, s := range got {
			if i < len(outside) && reflect.DeepEqual(s, outside[i]) {
				i++
			}
		}
		if i < len(outside) {
			t.Fatalf("damage from %d to %d: of %d untouched steps %d came back", begin, end, len(outside), i)
		}
	})
}

// FuzzScan reads arbitrary bytes as a file, and as payloads.
func FuzzScan(f *testing.F) {
	whole, _ := stepsBytes(3)
	f.Add(whole)
	f.Add(whole[blockHead:])
	frames, _, _ := record(rand.New(rand.NewPCG(5, 6)), 1)
	var coder coding.FrameCoder
	f.Add(coder.Append(nil, &frames[0]))
	f.Fuzz(func(t *testing.T, p []byte) {
		scanSteps(t, p)
		steps, incarnation, err := coding.DecodeSteps(nil, p)
		if err == nil {
			again, i, err := coding.DecodeSteps(nil, coding.EncodeSteps(incarnation, steps))
			if err != nil || i != incarnation || len(again) != len(steps) {
				t.Fatalf("%d steps do not survive a second coding: %v", len(steps), err)
			}
		}
		var coder coding.FrameCoder
		if frame, err := coder.Decode(source, p); err == nil {
			var a, b coding.FrameCoder
			if _, err := b.Decode(source, a.Append(nil, &frame)); err != nil && frame.Sequence != 0 {
				t.Fatalf("a frame does not survive a second coding: %v", err)
			}
		}
	})
}
