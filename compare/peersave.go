package compare

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// saveWait is for a program that never answers the command to save, such as one that does not know it: files take milliseconds each, for which
// there is snapshotStop beside.
const saveWait = 30 * time.Second

// early refuses parameters that are saved before that was asked for: what it takes to write them would be among what the row took.
func early(p *peerProcess, w peerWord) error {
	if w.Event != Snapshot {
		return nil
	}
	return fmt.Errorf("%s %d saves parameters before it is told to: copies are written at the command save, once nothing is measured any more (compare/peers/README.md)", p.Role, p.Rank)
}

// A peerCopy is what is known of parameters that worker 0 was told to keep.
type peerCopy struct {
	clock float64 // of worker 0 at the end of the run
	last  bool    // they are those of the run's last update: their clock is that one
	asked bool    // by the trial, and not for the clock alone
}

// clockRun is train of the updates behind from, up to to. Parameters that the trial wants of them are kept, and then also those of the last: the
// clock at that copy must be the one that is answered, which is held against ours, so that copies' clocks are no other than it.
func (t *peerTrial) clockRun(list []int64, from, to int64) ([]peerWord, error) {
	c := peerCommand{Do: "run", Updates: to - from}
	for _, u := range list {
		if from < u && u <= to {
			c.Snapshots = append(c.Snapshots, u)
		}
	}
	asked := len(c.Snapshots)
	if asked > 0 && c.Snapshots[asked-1] != to {
		c.Snapshots = append(c.Snapshots, to)
	}
	words, err := t.train(c, early)
	if err != nil {
		return nil, err
	}
	for i, u := range c.Snapshots {
		t.copies[u] = peerCopy{clock: words[0].Seconds, last: u == to, asked: i < asked}
	}
	return words, nil
}

// save has the copies written that worker 0 keeps, once nothing is measured any more, and returns what it says of each that the trial wants.
func (t *peerTrial) save() (kept []Event, err error) {
	if len(t.copies) == 0 {
		return nil, nil
	}
	wait := saveWait + time.Duration(len(t.copies))*snapshotStop
	late := time.AfterFunc(wait, func() {
		t.cancel(fmt.Errorf("it was told to save its parameters, and has not answered in %v: its program may not know that command (compare/peers/README.md)", wait))
	})
	defer late.Stop()
	_, err = t.command(peerCommand{Do: "save"}, "saved", func(p *peerProcess, w peerWord) error {
		if w.Event != Snapshot {
			return nil
		}
		if !filepath.IsAbs(w.Path) {
			w.Path = filepath.Join(p.cmd.Dir, w.Path)
		}
		if filepath.Dir(w.Path) != p.out {
			return fmt.Errorf("%s %d saves parameters to %s, and not to its own folder", p.Role, p.Rank, w.Path)
		}
		if !(w.Seconds > 0) { // a ratio of times would be no number
			return fmt.Errorf("%s %d saved parameters after %v s of its clock, at update %d", p.Role, p.Rank, w.Seconds, w.Update)
		}
		if _, ok := t.copies[w.Update]; !ok {
			return fmt.Errorf("%s %d saved parameters of update %d, which it was not told to keep", p.Role, p.Rank, w.Update)
		}
		if slices.ContainsFunc(kept, func(k Event) bool { return k.Update == w.Update }) {
			return fmt.Errorf("%s %d saved parameters of update %d twice", p.Role, p.Rank, w.Update)
		}
		kept = append(kept, Event{Kind: Snapshot, Update: w.Update, Seconds: w.Seconds, Path: w.Path})
		return nil
	})
	if err != nil || len(kept) == 0 { // a model that is not ours has no parameters to compare
		return nil, err
	}
	slices.SortFunc(kept, func(a, b Event) int { return cmp.Compare(a.Update, b.Update) })
	if err := t.clocked(kept); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(kept, func(k Event) bool { return !t.copies[k.Update].asked }), nil
}

// clocked refuses copies, in the order of their updates, whose clocks are not those of the training: they say when the target was met.
func (t *peerTrial) clocked(kept []Event) error {
	said := map[int64]float64{}
	for i, k := range kept {
		said[k.Update] = k.Seconds
		if i > 0 && k.Seconds <= kept[i-1].Seconds {
			return fmt.Errorf("%s 0 says %.3g s at the copy of update %d, and %.3g s at that of update %d: its clock runs backwards, or stands still",
				t.lead, kept[i-1].Seconds, kept[i-1].Update, k.Seconds, k.Update)
		}
		if end := t.copies[k.Update].clock; k.Seconds > end {
			return fmt.Errorf("%s 0 says %.3g s at the copy of update %d, and %.3g s at the end of that run, which comes later", t.lead, k.Seconds, k.Update, end)
		}
	}
	for u, c := range t.copies {
		switch at, ok := said[u]; {
		case !c.last:
		case !ok:
			return fmt.Errorf("%s 0 saved no parameters of update %d, the last of a run: what its clock says at copies cannot be held against what it says then", t.lead, u)
		case c.clock > at*(1+clockShare):
			return fmt.Errorf("%s 0 says %.3g s at the copy of update %d, the last of a run, and %.3g s at its end: these are not one clock", t.lead, at, u, c.clock)
		}
	}
	return nil
}
