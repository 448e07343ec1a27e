package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/cluster/fleet"
	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/train/links"
	"github.com/trivium-ml/trivium/train/processes"
)

// benchVerb measures what training would use.
type benchVerb struct {
	Net benchNet `cmd:"" help:"Measure the links between worker processes, or between a cluster's machines."`
}

// benchNet measures links.
type benchNet struct {
	Workers amount        `short:"w" placeholder:"N" help:"Processes on this machine (default 2), or machines of the cluster (default all)."`
	For     time.Duration `default:"100ms" placeholder:"TIME" help:"Of each measurement (default 100ms)."`
	Sizes   []count       `placeholder:"BYTES" help:"Payloads whose rate is measured (default 65536,1048576,4194304)."`
	JSON    bool          `name:"json" help:"Print a JSON object."`
	onFlags
}

func (benchNet) Help() string {
	return "Every pair of members exchanges frames in both directions, one pair at a time, and then all with all. What is measured is what training will use: shared memory and unix sockets on one machine, TCP, with TLS, between machines. Last come the costs that the collectives plan with."
}

func (v *benchNet) Run(ctx context.Context, s *session) error {
	o := links.Options{For: v.For}
	for _, n := range v.Sizes {
		o.Sizes = append(o.Sizes, int(n))
	}
	options, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if v.For <= 0 {
		return misusedf("--for: want a time above 0, found %v", v.For)
	}
	if v.Workers == 1 {
		return misusedf("--workers: a link has two ends: want 2 or more, found 1")
	}
	if v.On != "" || v.Token != "" { // a token alone is refused there
		return v.onCluster(ctx, s, options)
	}
	if v.Workers == 0 {
		v.Workers = 2
	}
	t := &training{job: linksJob(), topology: linksName, workers: int(v.Workers), processes: true}
	team, err := s.assemble(ctx, t)
	if err != nil {
		return err
	}
	defer team.close()
	r, err := s.measure(ctx, t, team, options)
	if err != nil {
		return err
	}
	return v.print(s.out, r, func(i int) string { return fmt.Sprint(i) })
}

// linksName is the topology that measures.
const linksName = "links"

// linksJob is a job for workers that train nothing.
func linksJob() *trivium.Job { return &trivium.Job{Version: trivium.JobVersion, Model: linksName} }

// measure has a team measure its links.
func (s *session) measure(ctx context.Context, t *training, m *team, options json.RawMessage) ([]byte, error) {
	b, err := thisBuild()
	if err != nil {
		return nil, err
	}
	topology, _ := started.Find(linksName)
	d := processes.Driver{
		Run: linksName, Job: t.job, Topology: topology, Options: options, Workers: t.workers, Threads: 1, Port: m.port, Network: m.network,
		NetworkOf: m.networkOf, Launcher: m.launcher, Build: b.Binary, Log: m.log, Output: s.outputs(t.workers),
	}
	r, err := d.Train(ctx)
	if ctx.Err() != nil { // the workers say that they were broken off, each for itself
		return nil, ctx.Err()
	}
	if err := t.verdict(s, r, err); err != nil {
		return nil, err
	}
	return d.Report, nil
}

// onCluster measures between the machines of a cluster. The job's log is the result, as JSON.
func (v *benchNet) onCluster(ctx context.Context, s *session, options json.RawMessage) error {
	client, err := v.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	b, err := thisBuild()
	if err != nil {
		return err
	}
	job, err := linksJob().Encode()
	if err != nil {
		return err
	}
	payload, err := json.Marshal(submission{Job: job, Topology: linksName, Options: options})
	if err != nil {
		return err
	}
	j, err := give(ctx, client, fleet.Spec{
		Name: "bench net", Build: b.Binary, Payload: payload, Need: fleet.Need{Workers: int(v.Workers), Threads: 1, Each: true},
	})
	if err != nil {
		return err
	}
	if j.Why != "" {
		fmt.Fprintln(s.err, j.Sentence())
	}
	var words strings.Builder
	if err = client.Log(ctx, j.ID, true, &words); ctx.Err() != nil { // nobody is left who wants the result
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), joinWait)
		defer cancel()
		_, failed := client.Cancel(ending, j.ID)
		return errors.Join(clusterError(ctx.Err()), clusterError(failed))
	}
	if err != nil {
		return clusterError(err)
	}
	if j, err = client.Job(ctx, j.ID); err != nil {
		return clusterError(err)
	}
	if j.State != fleet.Done {
		return &codedError{max(j.Code, Failed), errors.New(j.Sentence())}
	}
	return v.print(s.out, []byte(words.String()), func(i int) string { return j.Nodes[i] })
}

// print lays the result out.
func (v *benchNet) print(w io.Writer, report []byte, name func(rank int) string) error {
	var r links.Result
	if err := json.Unmarshal(report, &r); err != nil {
		return fmt.Errorf("bench net: the result: %w", err)
	}
	if len(r.Links) == 0 {
		return misusedf("bench net: a link has two ends, and the cluster has one machine, %s", name(0))
	}
	if v.JSON {
		_, err := fmt.Fprintf(w, "%s\n", strings.TrimSpace(string(report)))
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "FROM\tTO\tROUND TRIP\t99 %\tLONGEST"
	for _, n := range r.Links[0].Sizes {
		head += "\t" + quantity.Bytes(n)
	}
	fmt.Fprintln(t, head)
	for _, l := range r.Links {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s", name(l.From), name(l.To), micros(l.RTT[0]), micros(l.RTT[1]), micros(l.RTT[2]))
		for _, rate := range l.Rates {
			fmt.Fprintf(t, "\t%.2f GB/s", rate/1e9)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t)
	for i, rate := range r.Exchange {
		if rate > 0 {
			fmt.Fprintf(t, "%s to all, while all send\t\t\t\t\t%.2f GB/s\n", name(i), rate/1e9)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	c := r.Costs
	_, err := fmt.Fprintf(w, "costs of a collective: %.1f µs a message, %.3f ns a byte sent (%.2f GB/s), %.3f ns a byte reduced\n",
		c.Alpha*1e6, c.Beta*1e9, 1/c.Beta/1e9, c.Gamma*1e9)
	return err
}

func micros(d time.Duration) string { return fmt.Sprintf("%.1f µs", float64(d)/1e3) }
