package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/internal/median"
)

// A Row is one system in a table.
type Row struct {
	System    string   `json:"system"`
	Title     string   `json:"title"`
	Mode      Mode     `json:"mode"`
	Peer      bool     `json:"peer,omitempty"`
	Approx    string   `json:"approx,omitempty"`
	Shared    bool     `json:"shared,omitempty"` // its processes share memory
	Effective int      `json:"effective_batch"`
	Workers   int      `json:"workers"`
	Servers   int      `json:"servers"`
	Threads   int      `json:"threads"`         // of a worker
	Crowded   bool     `json:"crowded"`         // more busy threads than cores: it carries no verdict
	Error     string   `json:"error,omitempty"` // why there is no result
	Trials    []Repeat `json:"trials,omitempty"`

	Rate    Spread          `json:"samples_per_second"`
	Target  Spread          `json:"seconds_to_target"`
	Samples Spread          `json:"samples_to_target"`
	Start   Spread          `json:"start_seconds"`
	Good    int             `json:"good"`    // trials that ended well
	Reached int             `json:"reached"` // of these, the target
	Best    float64         `json:"best"`
	Proof   string          `json:"proof,omitempty"`
	Largest float64         `json:"deviation"`
	Ranked  bool            `json:"ranked"`
	Why     string          `json:"not_ranked,omitempty"`
	Place   int             `json:"place,omitempty"` // by time to target, from 1
	Use     map[Role]PerUse `json:"use,omitempty"`

	best string // in words
	cell string // whose trials these are; tables may share one
}

// Repeat is a repeat with its result.
type Repeat struct {
	Repeat int          `json:"repeat"`
	Result Result       `json:"result"`
	Curve  []curvePoint `json:"curve,omitempty"`
}

// A Spread is a median with its extremes; of no trial it is zero.
type Spread struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Values []float64 `json:"-"`
}

func spread(x []float64) Spread {
	if len(x) == 0 {
		return Spread{}
	}
	return Spread{median.Of(x), slices.Min(x), slices.Max(x), x}
}

// PerUse is what the processes of a role took: medians over the trials.
type PerUse struct {
	Processes    int     `json:"processes"`
	UserShare    float64 `json:"user_cores"`   // cores that were busy
	SystemShare  float64 `json:"system_cores"` //
	MicrosSample float64 `json:"cpu_micros_per_sample"`
	MeanBytes    float64 `json:"mean_bytes"`
	PeakBytes    float64 `json:"peak_bytes"`
	Readings     int     `json:"memory_readings,omitempty"` // the fewest of any process in any trial; 0: not known
	BytesSample  float64 `json:"bytes_per_sample"`          // in and out
	BytesSecond  float64 `json:"bytes_per_second"`
	NotCounted   string  `json:"not_measured,omitempty"`
	NotTimed     string  `json:"not_timed,omitempty"` // why what is by second or by sample is not known

	SystemUpdate    float64 `json:"system_seconds_per_update"`
	CallsUpdate     float64 `json:"system_calls_per_update"`
	TransfersUpdate float64 `json:"transfer_calls_per_update"` // of these, reads and writes, sends and receives
	CallsUnknown    string  `json:"calls_not_measured,omitempty"`
}

// unseen is why a row that saves no parameters is not ranked.
const unseen = "it saves no parameters of this model: its way to the target is not seen"

// extra is why a row whose processes share memory is not ranked: a topology would get the credit for what is the memory's. In a user's own
// job it is ranked: there a row is what he can have, and no more.
const extra = "its processes share memory, where those of ranked rows talk TCP"

// good is the least number of good repeats that rank.
const good = 3

// count makes a row's figures of its trials.
func (x *Row) count(t *Table) {
	var rates, targets, samples, starts []float64
	x.Good, x.Reached, x.Proof, x.Largest, x.Error = 0, 0, "", 0, ""
	best, cut, blind, looked := math.NaN(), false, 0, int64(0)
	roles := map[Role][]PerUse{}
	for _, one := range x.Trials {
		r := &one.Result
		if r.Error != "" {
			x.Error = r.Error
			continue
		}
		x.Good++
		rates, starts = append(rates, r.SamplesPerSec), append(starts, r.StartSeconds)
		cut = cut || r.Cut
		seen := len(r.Curve) > 0 || len(one.Curve) > 0
		if !seen && !r.Cut { // else it was too slow for its first place
			blind++
		}
		if r.Reached {
			x.Reached++
			targets = append(targets, r.SecondsToTarget)
			if !uneven(x.System, x.Mode) {
				samples = append(samples, float64(r.SamplesToTarget))
			}
		}
		if n := len(one.Curve); !r.Reached && n > 0 {
			looked = max(looked, one.Curve[n-1].Update)
		}
		if seen && t.Target.better(r.Best, best) {
			best = r.Best
		}
		if x.Proof == "" || x.Proof == proven {
			x.Proof = r.Proof
		}
		x.Largest = max(x.Largest, r.Deviation)
		for role, u := range r.PerRole {
			each := u.per(r)
			each.Readings = u.Readings
			roles[role] = append(roles[role], each)
		}
	}
	if x.Good > 0 {
		x.Error = ""
	}
	x.Rate, x.Target, x.Samples, x.Start, x.Best = spread(rates), spread(targets), spread(samples), spread(starts), orZero(best)
	x.best = "best unknown"
	if !math.IsNaN(best) {
		x.best = fmt.Sprintf("best %.4g", best)
	}
	if x.Reached > 0 && x.Reached < x.Good {
		x.best += fmt.Sprintf(", reached in %d of %d repeats", x.Reached, x.Good)
	}
	x.Use = map[Role]PerUse{}
	for role, list := range roles {
		x.Use[role] = medianUse(list)
	}
	switch {
	case x.Error != "":
		x.Why = x.Error
	case x.Proof != "" && x.Proof != proven:
		x.Why = x.Proof
	case x.Good > 0 && blind == x.Good:
		x.Why = unseen
	case x.Reached < x.Good && cut:
		x.Why = fmt.Sprintf("not reached within the time limit of a trial (%s)", x.best)
	case x.Reached < x.Good:
		x.Why = fmt.Sprintf("not reached where it was looked for, up to update %d (%s)", looked, x.best)
	case x.Good < good:
		x.Why = fmt.Sprintf("%d of %d repeats ended well, and %d are wanted", x.Good, len(x.Trials), good)
	case x.Shared && !t.Own:
		x.Why = extra
	default:
		x.Why = ""
	}
	x.Ranked = x.Why == ""
}

// uneven reports whether rank 0's updates, by which the places of a curve are counted, do not say how many samples a row has trained on: where its
// workers wait for nobody, and one of them is half as fast.
func uneven(system string, m Mode) bool { return m == Async && strings.HasSuffix(system, slow) }

// per is u by second of a trial and by sample.
func (u Use) per(r *Result) PerUse {
	out := PerUse{Processes: u.Processes, MeanBytes: u.MeanBytes, PeakBytes: u.PeakBytes, NotCounted: u.NotCounted, CallsUnknown: u.CallsUnknown}
	if u.Calls != nil && u.Calls.Updates > 0 {
		updates := float64(u.Calls.Updates)
		out.CallsUpdate, out.TransfersUpdate = float64(u.Calls.All)/updates, float64(u.Calls.Transfers)/updates
	} else {
		out.CallsUnknown = orElse(u.CallsUnknown, "the trial is from before they were")
	}
	window := r.window()
	if window == 0 {
		out.NotTimed = "the trial does not say for how long it was counted"
		return out
	}
	out.UserShare, out.SystemShare = u.User/window, u.System/window
	out.BytesSecond = float64(u.In+u.Out) / window
	if updates := r.updatesWithin(); updates > 0 {
		out.SystemUpdate = u.System / updates
	}
	if samples := r.within(); samples > 0 {
		out.MicrosSample = (u.User + u.System) * 1e6 / samples
		out.BytesSample = float64(u.In+u.Out) / samples
	}
	return out
}

// window is the time that PerRole was counted in, in seconds. The clock's, Seconds, is shorter: it stands still while parameters are copied,
// and PMLS's program writes them to files before it answers, as other systems' did in directories without FilesAfter. Results from before Window
// was recorded have the lap of training, which is longer by a last look at the memory: some milliseconds. 0: it is not known.
func (r *Result) window() float64 {
	if r.Window > 0 {
		return r.Window
	}
	return r.Wall["train"]
}

// within are the samples that were trained on in the window: all. Before Window was recorded, that of workers which wait for nobody ended with
// rank 0's updates, and whoever was slower had not done its own: then they are as many as there were at the speed of all together.
func (r *Result) within() float64 {
	all := float64(r.Samples)
	if r.Window == 0 {
		all = min(all, r.SamplesPerSec*r.window())
	}
	return all
}

// updatesWithin are the updates in the window: of workers that wait for nobody, those of rank 0, beside which each of the others does about as many.
func (r *Result) updatesWithin() float64 {
	if r.Samples == 0 {
		return 0
	}
	return float64(r.Updates) * r.within() / float64(r.Samples)
}

// medianUse is the median of each figure over the trials in which it is known, if there is one: of bytes, those in which the bytes of all processes
// were counted.
func medianUse(list []PerUse) PerUse {
	out := list[0]
	ofAll := func(list []PerUse, f func(*PerUse) *float64) {
		var x []float64
		for i := range list {
			x = append(x, *f(&list[i]))
		}
		*f(&out) = median.Of(x)
	}
	timed := slices.DeleteFunc(slices.Clone(list), func(u PerUse) bool { return u.NotTimed != "" })
	counted := slices.DeleteFunc(slices.Clone(timed), func(u PerUse) bool { return u.NotCounted != "" })
	if len(timed) > 0 {
		out = timed[0]
		ofAll(timed, func(u *PerUse) *float64 { return &u.UserShare })
		ofAll(timed, func(u *PerUse) *float64 { return &u.SystemShare })
		ofAll(timed, func(u *PerUse) *float64 { return &u.MicrosSample })
		ofAll(timed, func(u *PerUse) *float64 { return &u.SystemUpdate })
	}
	if traced := slices.DeleteFunc(slices.Clone(list), func(u PerUse) bool { return u.CallsUnknown != "" }); len(traced) > 0 {
		out.CallsUnknown = ""
		ofAll(traced, func(u *PerUse) *float64 { return &u.CallsUpdate })
		ofAll(traced, func(u *PerUse) *float64 { return &u.TransfersUpdate })
	}
	ofAll(list, func(u *PerUse) *float64 { return &u.MeanBytes })
	ofAll(list, func(u *PerUse) *float64 { return &u.PeakBytes })
	for i := range list {
		out.Readings = lessRead(out.Readings, list[i].Readings)
	}
	if len(counted) > 0 {
		out.NotCounted = ""
		ofAll(counted, func(u *PerUse) *float64 { return &u.BytesSample })
		ofAll(counted, func(u *PerUse) *float64 { return &u.BytesSecond })
	}
	return out
}

// lessRead is the lesser of two numbers of readings, of which 0 is not known.
func lessRead(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
