package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Slow makes workers slower than they are, for experiments with stragglers: one of them, or each in its turn.
type Slow struct {
	Worker int           `json:"worker,omitempty"` // whose steps take longer
	Rotate bool          `json:"rotate,omitempty"` // in round c, worker c mod n in place of Worker
	Factor float64       `json:"factor,omitempty"` // how many times as long; 0: nobody is slow
	Unit   time.Duration `json:"unit,omitempty"`   // emulated compute: a round, of however many steps, waits so long besides, a slow one Factor times. 0: a slow worker waits Factor - 1 times what its work took
}

// ParseSlow reads "worker=2,factor=3", "worker=rotate,factor=4,unit=20ms".
func ParseSlow(s string) (o Slow, err error) {
	o.Factor = 2
	var errs []error
	seen := map[string]bool{}
	for _, word := range strings.Split(s, ",") {
		k, v, _ := strings.Cut(strings.TrimSpace(word), "=")
		if seen[k] {
			errs = append(errs, fmt.Errorf("server: slow: %s is given twice, and is wanted once: one worker is slow, or with worker=rotate each in its turn", k))
		}
		seen[k] = true
		switch k {
		case "worker":
			if v == "rotate" {
				o.Rotate = true
				break
			}
			if o.Worker, err = strconv.Atoi(v); err != nil {
				errs = append(errs, fmt.Errorf("server: slow: worker: want a number or rotate, found %q", v))
			}
		case "factor":
			if o.Factor, err = strconv.ParseFloat(v, 64); err != nil {
				errs = append(errs, fmt.Errorf("server: slow: factor: want a number, found %q", v))
			}
		case "unit":
			if o.Unit, err = time.ParseDuration(v); err != nil {
				errs = append(errs, fmt.Errorf("server: slow: unit: want a time such as 20ms, found %q", v))
			}
		default:
			errs = append(errs, fmt.Errorf("server: slow: want worker=N or worker=rotate, factor=X, unit=TIME, found %q", word))
		}
	}
	if err := errors.Join(append(errs, o.validate())...); err != nil {
		return Slow{}, err
	}
	return o, nil
}

func (o Slow) validate() error {
	if o.Factor < 0 || o.Factor != 0 && o.Factor < 1 || o.Factor-o.Factor != 0 || o.Unit < 0 || o.Worker < 0 {
		return fmt.Errorf("server: slow: want a worker, a factor of 1 or more and a unit of 0 or more, found worker %d, factor %g, unit %v", o.Worker, o.Factor, o.Unit)
	}
	return nil
}

// slow reports whether that worker is slow in that round, which counts from 0.
func (o Slow) slow(round int64, rank, workers int) bool {
	if o.Factor == 0 {
		return false
	}
	if o.Rotate {
		return round%int64(workers) == int64(rank)
	}
	return o.Worker == rank
}

// extra is what a step of that worker takes longer, where its own work took so long.
func (o Slow) extra(round int64, rank, workers int, took time.Duration) time.Duration {
	slow := o.slow(round, rank, workers)
	switch {
	case o.Unit > 0 && slow:
		return time.Duration(float64(o.Unit) * o.Factor)
	case o.Unit > 0:
		return o.Unit
	case slow:
		return time.Duration(float64(took) * (o.Factor - 1))
	}
	return 0
}

// wait waits that long, or until ctx ends: whoever is asked to stop has nothing to emulate any more.
func (o Slow) wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
