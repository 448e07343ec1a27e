package app

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train/server"
)

// served is the topology that takes serverFlags.
const served = "server"

// serverFlags are options of the server topology.
type serverFlags struct {
	Servers     amount `group:"Run" placeholder:"N" help:"server: processes that hold the model (default 1); on a cluster they are workers, on as many machines as can be."`
	Lanes       amount `group:"Run" placeholder:"N" help:"server: parts of each server, which answer by themselves: for large models on slow links (default: under bsp, what suits the links; else 1)."`
	Consistency string `group:"Run" placeholder:"MODE" help:"server: bsp, ssp:N, essp:N or asp: how many rounds a worker may read behind (default ssp:3)."`
	OptimizerOn string `group:"Run" placeholder:"PLACE" help:"server: where updates are made: server (default; with --clocks: worker) or worker."`
	Clocks      amount `group:"Run" placeholder:"N" help:"server: meet the tables N times an epoch; between, a worker takes steps of --batch rows on a copy of its own."`
	StepsARound amount `name:"steps-per-round" group:"Run" placeholder:"K" help:"server: the same, by the number of steps between two meetings."`
	Merge       string `group:"Run" placeholder:"HOW" help:"server: what the workers' steps come to: sum (default, as PMLS) or mean (model averaging)."`
	Slow        string `group:"Run" placeholder:"LIST" help:"server: make workers slow, for experiments: worker=N or worker=rotate[,factor=X][,unit=TIME] (default factor 2)."`
}

// serve gives t the options of the server topology, which sends by that codec, or says everything that is wrong with them.
func (f serverFlags) serve(s *session, t *training, codec string) error {
	if t.topology != served {
		if f != (serverFlags{}) {
			return misplaced(f.served(), served, t.topology)
		}
		return nil
	}
	o := server.DefaultOptions()
	var errs []error
	var err error
	if o.Servers = int(max(1, f.Servers)); o.Servers > 256 {
		errs = append(errs, fmt.Errorf("--servers: want 1 to 256, found %d", o.Servers))
		o.Servers = 1 // so that it is said once
	}
	if f.Consistency != "" {
		if o.Mode, o.Staleness, err = ps.ParseMode(f.Consistency); err != nil {
			errs = append(errs, fmt.Errorf("--consistency: %w", err))
		}
	}
	o.Lanes, o.Clocks, o.StepsPerRound, o.Compress = int(f.Lanes), int(f.Clocks), int(f.StepsARound), codec
	switch f.Merge {
	case "", "sum":
	case "mean":
		o.Mean = true
	default:
		errs = append(errs, fmt.Errorf("--merge: want sum or mean, found %q", f.Merge))
	}
	switch f.OptimizerOn {
	case "":
		if o.Clocks > 0 || o.StepsPerRound > 1 {
			o.OptimizerAt = server.AtWorker // it is there that several steps are taken
		}
	case "server":
	case "worker":
		o.OptimizerAt = server.AtWorker
	default:
		errs = append(errs, fmt.Errorf("--optimizer-on: want server or worker, found %q", f.OptimizerOn))
	}
	if f.Slow != "" {
		if o.Slow, err = server.ParseSlow(f.Slow); err != nil {
			errs = append(errs, fmt.Errorf("--slow: %w", err))
		} else if !o.Slow.Rotate && o.Slow.Worker >= t.workers {
			errs = append(errs, fmt.Errorf("--slow: worker %d: there are %d, numbered from 0", o.Slow.Worker, t.workers))
		}
	}
	errs = append(errs, o.Check(t.job, s.optimizers, t.workers))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	t.servers = o.Servers
	t.options, err = json.Marshal(o)
	return err
}

// served are the flags as they are typed.
func (f serverFlags) served() (list []string) {
	for _, x := range []struct {
		flag string
		n    amount
	}{{"--servers", f.Servers}, {"--lanes", f.Lanes}, {"--clocks", f.Clocks}, {"--steps-per-round", f.StepsARound}} {
		if x.n > 0 {
			list = append(list, x.flag, fmt.Sprint(x.n))
		}
	}
	for _, x := range [][2]string{{"--merge", f.Merge}, {"--consistency", f.Consistency}, {"--optimizer-on", f.OptimizerOn}, {"--slow", f.Slow}} {
		if x[1] != "" {
			list = append(list, x[0], x[1])
		}
	}
	return list
}
