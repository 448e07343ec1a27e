package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/trivium-ml/trivium/cluster/fleet"
	"github.com/trivium-ml/trivium/internal/quantity"
)

// statusVerb shows a cluster.
type statusVerb struct {
	Follow bool `short:"f" help:"Show it anew each second, until interrupted."`
	JSON   bool `name:"json" help:"Print a JSON object (a line each second with --follow)."`
	onFlags
}

func (v *statusVerb) Run(ctx context.Context, s *session) error {
	client, err := v.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return v.show(ctx, s, client)
}

// show prints the status, or one each second until ctx ends.
func (v *statusVerb) show(ctx context.Context, s *session, client *fleet.Client) error {
	screen := v.redraws(s.out)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		st, err := client.Status(ctx)
		switch {
		case err != nil && v.Follow && ctx.Err() != nil:
			return nil
		case err != nil:
			return clusterError(err)
		}
		switch {
		case v.JSON:
			if err := json.NewEncoder(s.out).Encode(st); err != nil {
				return err
			}
		default:
			text := statusText(st)
			if screen {
				text = "\x1b[H\x1b[2J" + text // from the top of a clear screen
			}
			if _, err := io.WriteString(s.out, text); err != nil {
				return err
			}
		}
		if !v.Follow {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// redraws tells whether a status takes the place of the one before.
func (v *statusVerb) redraws(out io.Writer) bool {
	_, _, draws := terminal(out, os.Getenv)
	return draws && v.Follow && !v.JSON
}

// statusText lays a status out.
func statusText(st fleet.Status) string {
	var b strings.Builder
	cores, free, machines := 0, 0, 0
	for _, m := range st.Members {
		if m.Offer != nil {
			machines++
			cores, free = cores+m.Offer.Cores, free+m.Free
		}
	}
	fmt.Fprintf(&b, "cluster at epoch %d, %s lent, %d of %s free; a member silent for %v is convicted\n\n",
		st.Epoch, quantity.Count(machines, "machine"), free, quantity.Count(cores, "core"), st.Budget.Round(time.Millisecond))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MEMBER\tROLE\tSTATE\tHEARD\tCORES\tFREE\tMEMORY\tPROCESSES\tUP\tADDRESS\t")
	for _, m := range st.Members {
		cores, free, memory, processes := "-", "-", "-", "-"
		if m.Offer != nil {
			cores, free = fmt.Sprint(m.Offer.Cores), fmt.Sprint(m.Free)
			memory, processes = quantity.Bytes(m.Offer.Memory), fmt.Sprint(m.Processes)
		}
		heard := "-"
		if m.Heard >= 0 {
			heard = m.Heard.Round(time.Millisecond).String()
		}
		up := "-"
		if !m.Since.IsZero() {
			up = st.Time.Sub(m.Since).Round(time.Second).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Name, m.Role, m.State, heard, cores, free, memory, processes, up, m.Addr, m.Why)
	}
	_ = w.Flush() // a Builder takes everything
	if len(st.Jobs) == 0 {
		b.WriteString("\nno jobs\n")
		return b.String()
	}
	b.WriteByte('\n')
	fmt.Fprintln(w, "JOB\tRUN\tMODEL\tSTATE\tWORKERS\tTHREADS\tON\tAGE\tRAN\tDONE\tLEFT\tSAMPLES/S\t")
	for _, j := range st.Jobs {
		ran := "-"
		if !j.Started.IsZero() {
			end := j.Ended
			if end.IsZero() {
				end = st.Time
			}
			ran = end.Sub(j.Started).Round(100 * time.Millisecond).String()
		}
		workers := fmt.Sprint(j.Need.Workers)
		if j.Need.Workers == 0 {
			workers = "all"
		}
		done, left, speed := "-", "-", "-"
		if p := j.Progress; p != nil {
			done, speed = thousands(p.Step), quantity.Short(p.SamplesSec)
			if p.Steps > 0 {
				done = fmt.Sprintf("%.0f %%", math.Floor(100*float64(p.Step)/float64(p.Steps)))
			}
			if p.Left >= 0 {
				left = clock(p.Left)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%v\t%s\t%s\t%s\t%s\t%s\n", j.ID, cmp.Or(j.Run, "-"), j.Name, j.State, workers, j.Threads, placesOf(j.Nodes),
			st.Time.Sub(j.Submitted).Round(time.Second), ran, done, left, speed, j.Why)
	}
	_ = w.Flush()
	return b.String()
}

// placesOf counts the workers on each node, in order of the first.
func placesOf(nodes []string) string {
	if len(nodes) == 0 {
		return "-"
	}
	count := map[string]int{}
	var order []string
	for _, n := range nodes {
		if count[n]++; count[n] == 1 {
			order = append(order, n)
		}
	}
	for i, n := range order {
		order[i] = fmt.Sprintf("%s:%d", n, count[n])
	}
	return strings.Join(order, ",")
}
