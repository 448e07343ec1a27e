package compare

import (
	"fmt"
	"path/filepath"
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

// save has the copies written that worker 0 keeps, once nothing is measured any more, and returns what it says of each.
func (t *peerTrial) save(s *Spec) (kept []Event, err error) {
	if len(s.Snapshots) == 0 {
		return nil, nil
	}
	wait := saveWait + time.Duration(len(s.Snapshots))*snapshotStop
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
		kept = append(kept, Event{Kind: Snapshot, Update: w.Update, Seconds: w.Seconds, Path: w.Path})
		return nil
	})
	return kept, err
}
