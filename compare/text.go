package compare

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// Text prints the tables as a terminal shows them.
func (r *Report) Text(w io.Writer) error {
	var errs []error
	for _, t := range r.Tables {
		errs = append(errs, t.Text(w))
		fmt.Fprintln(w)
	}
	for _, x := range r.linkWords() {
		if x.link.Mbit > 0 { // what is not shaped was not asked to be of some rate
			fmt.Fprintf(w, "link %s: %s\n", x.link, x.text)
		}
	}
	for _, x := range r.atHand() {
		fmt.Fprintf(w, "doubt: %s\n", x)
	}
	r.failures(w)
	for _, f := range r.Faults {
		if f.Error != "" {
			fmt.Fprintf(w, "fault: %s of a %s of %s was not measured: %s; the command tries it again where it is repeated\n", f.Signal, f.Role, f.System, strings.TrimPrefix(f.Error, "not measured: "))
		}
	}
	switch c := &r.Check; {
	case c.Compared > 0 && c.Largest <= checkTolerance:
		fmt.Fprintf(w, "proof: check.py, with NumPy and none of this program, finds the same %d losses within %.1g\n", c.Compared, math.Max(c.Largest, 1e-9))
	case c.Compared > 0:
		fmt.Fprintf(w, "proof: check.py differs by %.2g in one of %d losses: no row should be trusted\n", c.Largest, c.Compared)
	case c.Why != "":
		fmt.Fprintf(w, "proof: not checked by NumPy: %s\n", c.Why)
	}
	return errors.Join(errs...)
}

// failures prints of which rows some repeats failed: their lines are of the others. Where all did, the line says so.
func (r *Report) failures(w io.Writer) {
	told := map[string]bool{} // several tables may show a row
	for _, t := range r.Tables {
		for _, x := range t.Rows {
			failed, why := 0, ""
			for i := range x.Trials {
				if e := x.Trials[i].Result.Error; e != "" {
					failed, why = failed+1, e
				}
			}
			if x.Good > 0 && failed > 0 && !told[x.cell] {
				told[x.cell] = true
				fmt.Fprintf(w, "failed: %s, %d of %s: %s\n", x.cell, failed, quantity.Count(len(x.Trials), "repeat"), why)
			}
		}
	}
}

// Text prints the table as a terminal shows it.
func (t *Table) Text(w io.Writer) error {
	fmt.Fprintf(w, "%s (%s on %s): target %v\n", t.title(), t.Model, filepath.Base(t.Data), t.Target)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "\tROW\tBATCH\tSAMPLES/S\t[MIN-MAX]\tTO TARGET\t[MIN-MAX]\tSAME LOSS\tMEMORY\tBYTES/SAMPLE\t")
	for _, x := range t.Rows {
		place := " "
		if x.Place > 0 {
			place = fmt.Sprint(x.Place)
		}
		mark := x.System
		if x.Crowded {
			mark += " *"
		}
		if x.Good == 0 {
			note := x.Error
			if note == "" {
				note = "not yet"
			}
			if said := x.lastSaid(); said != "" {
				note += "; the last it said: " + said
			}
			fmt.Fprintf(tab, "%s\t%s\t%s\t%s\n", place, mark, Batch(x.Effective), note)
			continue
		}
		target, span := quantity.Seconds(x.Target.Median), fmt.Sprintf("%s-%s", quantity.Seconds(x.Target.Min), quantity.Seconds(x.Target.Max))
		if x.Reached < x.Good {
			target, span = "not reached", x.best
		}
		if x.Why == unseen {
			target, span = "not seen", ""
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s-%s\t%s\t%s\t%s\t%s\t%s\t\n", place, mark, Batch(x.Effective), quantity.Short(x.Rate.Median), quantity.Short(x.Rate.Min),
			quantity.Short(x.Rate.Max), target, span, x.proofWord(), x.memoryWord(), x.networkWord())
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	for _, x := range t.Rows {
		if x.Crowded {
			fmt.Fprintln(w, "* more busy threads than cores: no verdict")
			break
		}
	}
	return nil
}

// lastSaid is the last line of a trial that failed; empty: it said nothing, or has no trial that failed.
func (x *Row) lastSaid() string {
	for i := len(x.Trials) - 1; i >= 0; i-- {
		if r := &x.Trials[i].Result; r.Error != "" && len(r.Last) > 0 {
			return last(r.Last)
		}
	}
	return ""
}

func (x *Row) proofWord() string {
	switch {
	case x.Approx != "":
		return "exempt"
	case x.Mode != Sync:
		return "stale"
	case x.Proof == proven:
		return fmt.Sprintf("yes (%s)", power(x.Largest, 0))
	case x.Proof == "":
		return "-"
	}
	return "NO"
}

// power writes a difference of losses by its power of ten, with so many digits; none is 0.
func power(x float64, digits int) string {
	if x == 0 {
		return "0"
	}
	return fmt.Sprintf("%.*e", digits, x)
}

func (x *Row) memoryWord() string {
	var sum float64
	for _, u := range x.Use {
		sum += u.MeanBytes
	}
	if sum == 0 {
		return "not measured"
	}
	return quantity.Bytes(sum)
}

func (x *Row) networkWord() string {
	if x.Workers == 1 && x.Servers == 0 {
		return "0"
	}
	var sum float64
	known := len(x.Use) > 0
	for _, u := range x.Use {
		sum += u.BytesSample
		known = known && u.NotCounted == "" && u.NotTimed == ""
	}
	if !known {
		return "not measured"
	}
	each := sum / 2 // a byte goes out once and comes in once
	if each < 10 {  // of a codec at the full batch, a part of one
		return fmt.Sprintf("%.2g", each)
	}
	return fmt.Sprintf("%.0f", each)
}
