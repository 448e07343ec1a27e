package compare

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/internal/median"
	"github.com/trivium-ml/trivium/internal/quantity"
)

// A LinkSpeed is what a link between network namespaces was found to be in a sitting, before its first trial on that link: what a row shows of a
// topology rests on the link being what was asked for, and whether the system shapes as it is told is seen by measuring alone.
type LinkSpeed struct {
	Link        Link    `json:"link"`
	Sitting     int     `json:"sitting"`
	Mbit        float64 `json:"measured_mbit,omitempty"`      // of payload that one connection carried one way, in 10⁶ bits a second
	RoundTrip   float64 `json:"round_trip_seconds,omitempty"` // of a byte
	NotMeasured string  `json:"not_measured,omitempty"`       // why
}

const (
	speedTime  = 300 * time.Millisecond // that a shaped link is measured for
	freeTime   = 100 * time.Millisecond // and one that is not, which is not held against what was asked for
	speedLimit = 10 * time.Second
	speedTrips = 21   // an odd number has a median
	speedOff   = 0.20 // of the rate that was asked for; the headers of what is sent are 4 to 5 % of it
)

// burst is how many bytes pass a shaped device at once: those of 1 ms.
func (l Link) burst() int { return max(l.Mbit*1000/8, 32<<10) }

// off reports whether the link is not what was asked for.
func (x *LinkSpeed) off() bool {
	return x.Link.Mbit > 0 && x.NotMeasured == "" && math.Abs(x.Mbit/float64(x.Link.Mbit)-1) > speedOff
}

// speedOf measures what goes from a to b for that long, in 10⁶ bits a second, once the bytes are through that a link lets pass at once, and before
// that how many seconds a byte takes there and back. It closes both.
func speedOf(a, b net.Conn, burst int, during time.Duration) (mbit, trip float64, err error) {
	if trip, err = roundTrip(a, b); err != nil {
		return 0, 0, errors.Join(err, a.Close(), b.Close())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for p := make([]byte, 64<<10); ; {
			if _, err := a.Write(p); err != nil { // it is closed: enough was seen
				return
			}
		}
	}()
	mbit, err = received(b, burst, during)
	if t, ok := a.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // what is on its way is nobody's, and must not be in a trial's time
	}
	err = errors.Join(err, a.Close(), b.Close())
	<-ended
	return mbit, trip, err
}

// received is the rate at which bytes come in after the first ones.
func received(b net.Conn, first int, during time.Duration) (mbit float64, err error) {
	p := make([]byte, 256<<10)
	for got := 0; got < first; {
		n, err := b.Read(p)
		if err != nil {
			return 0, err
		}
		got += n
	}
	began, got := time.Now(), 0
	for {
		n, err := b.Read(p)
		if err != nil {
			return 0, err
		}
		got += n
		if took := time.Since(began); took >= during {
			return float64(got) * 8 / took.Seconds() / 1e6, nil
		}
	}
}

// roundTrip is the median time of a byte from a to b and back, in seconds.
func roundTrip(a, b net.Conn) (float64, error) {
	echoed := make(chan error, 1)
	go func() {
		var p [1]byte
		for range speedTrips {
			_, err := io.ReadFull(b, p[:])
			if err == nil {
				_, err = b.Write(p[:])
			}
			if err != nil {
				echoed <- err
				return
			}
		}
		echoed <- nil
	}()
	var p [1]byte
	var took []float64
	for range speedTrips {
		began := time.Now()
		_, err := a.Write(p[:])
		if err == nil {
			_, err = io.ReadFull(a, p[:])
		}
		if err != nil {
			_ = b.Close() // else who echoes may wait for ever
			return 0, errors.Join(err, <-echoed)
		}
		took = append(took, time.Since(began).Seconds())
	}
	return median.Of(took), <-echoed
}

// A linkWord is what a reader is told of a link.
type linkWord struct {
	link Link
	text string // measured 743 Mbit/s, 0.20 ms
}

// speeds are what was measured in the sittings that a table's trials on that link are of.
func (r *Report) speeds() (list []LinkSpeed) {
	for _, x := range r.LinkSpeeds {
		if slices.ContainsFunc(r.Tables, func(t *Table) bool { return t.Link == x.Link && t.of(x.Sitting) }) {
			list = append(list, x)
		}
	}
	return list
}

// of reports whether some of a table's trials are of a sitting.
func (t *Table) of(sitting int) bool {
	return slices.ContainsFunc(t.Rows, func(x *Row) bool {
		return slices.ContainsFunc(x.Trials, func(one Repeat) bool { return one.Result.Sitting == sitting })
	})
}

// unshaped reports whether the link of a table was measured to be faster than what was asked for. A slower one is shaped all the same.
func (r *Report) unshaped(t *Table) bool {
	return slices.ContainsFunc(r.speeds(), func(x LinkSpeed) bool { return x.Link == t.Link && x.off() && x.Mbit > float64(x.Link.Mbit) })
}

// linkWords are the links that were measured, in the order in which they were first: of several sittings, from the least to the most.
func (r *Report) linkWords() (list []linkWord) {
	of := map[Link][]LinkSpeed{}
	var order []Link
	for _, x := range r.speeds() {
		if of[x.Link] == nil {
			order = append(order, x.Link)
		}
		of[x.Link] = append(of[x.Link], x)
	}
	for _, l := range order {
		var rates, trips []float64
		why := ""
		for _, x := range of[l] {
			if x.NotMeasured != "" {
				why = x.NotMeasured
				continue
			}
			rates, trips = append(rates, x.Mbit), append(trips, x.RoundTrip)
		}
		if len(rates) == 0 {
			list = append(list, linkWord{l, "not measured: " + why})
			continue
		}
		list = append(list, linkWord{l, fmt.Sprintf("measured %s, %s", span(mbitWord, rates), span(quantity.Seconds, trips))})
	}
	return list
}

// span is the least and the most of x in words, or one word where both are the same.
func span(word func(float64) string, x []float64) string {
	low, high := word(slices.Min(x)), word(slices.Max(x))
	if low == high {
		return low
	}
	return low + " to " + high
}

// mbitWord is 743.2 as 743 Mbit/s.
func mbitWord(x float64) string {
	if x >= 999.5 {
		return fmt.Sprintf("%.3g Gbit/s", x/1000)
	}
	return fmt.Sprintf("%.3g Mbit/s", x)
}
