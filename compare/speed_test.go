package compare

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A bucketConn is a connection behind a token bucket, in virtual time; a byte alone takes its while.
type bucketConn struct {
	net.Conn
	perSecond float64 // bytes
	tokens    int     // that pass at once
	wait      time.Duration
}

func (c *bucketConn) Write(p []byte) (int, error) {
	if len(p) == 1 {
		time.Sleep(c.wait)
		return c.Conn.Write(p)
	}
	over := max(0, len(p)-c.tokens)
	c.tokens = max(0, c.tokens-len(p))
	time.Sleep(time.Duration(float64(over) / c.perSecond * float64(time.Second)))
	return c.Conn.Write(p)
}

// TestSpeedOf: what a link carries is measured without the burst that it lets pass at once, which is a fifth of what a slow one carries in that time.
func TestSpeedOf(t *testing.T) {
	for _, mbit := range []int{2, 20, 750} {
		synctest.Test(t, func(t *testing.T) {
			link := Link{Mbit: mbit, Apart: true}
			x, y := net.Pipe()
			a := &bucketConn{Conn: x, perSecond: float64(mbit) * 1e6 / 8, tokens: link.burst(), wait: 150 * time.Microsecond}
			b := &bucketConn{Conn: y, wait: 50 * time.Microsecond}
			got, trip, err := speedOf(a, b, link.burst(), speedTime)
			if err != nil || !(math.Abs(got/float64(mbit)-1) <= 0.01) || !(math.Abs(trip-0.0002) <= 1e-9) {
				t.Errorf("%v: %v Mbit/s, %v s, %v", link, got, trip, err)
			}
		})
	}
}

// TestSpeedOfNone: a connection that breaks is an error, and nobody waits for it.
func TestSpeedOfNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		time.AfterFunc(time.Second, func() { _ = a.Close() })
		// Nothing ever goes through.
		if _, _, err := speedOf(&bucketConn{Conn: a, wait: time.Hour}, b, 1, speedTime); err == nil {
			t.Error("it was measured")
		}
	})
}

// TestLinkWords: the setup and the terminal say what each link was measured at; one that is not what was asked for is a threat to validity, and one of
// a comparison from before that was measured is none.
func TestLinkWords(t *testing.T) {
	shaped, free, fast := Link{Mbit: 750, Apart: true}, Link{Apart: true}, Link{Mbit: 10_000, Apart: true}
	for _, c := range []struct {
		name   string
		speeds []LinkSpeed
		said   []string // by the page
		threat string
	}{
		{"measured", []LinkSpeed{{free, 1, 23_456, 0.00003, ""}, {shaped, 1, 717.3, 0.0002, ""}}, []string{"measured 23.5 Gbit/s, 30 µs", "measured 717 Mbit/s, 200 µs"}, ""},
		{"twice", []LinkSpeed{{shaped, 1, 717.3, 0.0002, ""}, {shaped, 2, 701, 0.0004, ""}}, []string{"measured 701 Mbit/s to 717 Mbit/s, 200 µs to 400 µs"}, ""},
		{"once of two", []LinkSpeed{{shaped, 1, 0, 0, "no end after 10s"}, {shaped, 2, 717, 0.0002, ""}}, []string{"measured 717 Mbit/s, 200 µs"}, "the link of 750 Mbit/s has that rate was not measured: no end after 10s."},
		{"slower", []LinkSpeed{{fast, 1, 7990, 0.0001, ""}}, []string{"measured 7.99 Gbit/s, 100 µs"}, "The link of 10 Gbit/s was measured at 7.99 Gbit/s: what"},
		{"near enough", []LinkSpeed{{fast, 1, 8010, 0.0001, ""}}, []string{"measured 8.01 Gbit/s, 100 µs"}, ""},
		{"faster", []LinkSpeed{{shaped, 1, 20_000, 0.0001, ""}}, []string{"measured 20 Gbit/s, 100 µs"}, "The link of 750 Mbit/s was measured at 20 Gbit/s: what"},
		{"before it was measured", nil, nil, ""},
	} {
		r := &Report{LinkSpeeds: c.speeds}
		for _, x := range c.speeds {
			row := &Row{System: "allreduce", Trials: []Repeat{{Result: Result{Sitting: x.Sitting}}}}
			r.Tables = append(r.Tables, &Table{Task: "mlp1", Link: x.Link, Rows: []*Row{row}})
		}
		// A sitting whose first trial on the link was interrupted.
		r.LinkSpeeds = append(slices.Clone(c.speeds), LinkSpeed{fast, 9, 77, 0.1, ""}, LinkSpeed{shaped, 9, 77, 0.1, ""})
		r.threats()
		page, threats := fmt.Sprint(r.setup()), strings.Join(r.Threats, "\n")
		for _, want := range c.said {
			if strings.Count(page, want) != 1 {
				t.Errorf("%s: the setup does not say %q: %s", c.name, want, page)
			}
		}
		if strings.Contains(page, "measured before the first trial on each") != (len(c.speeds) > 0) {
			t.Errorf("%s: the setup says %s", c.name, page)
		}
		if c.threat == "" && strings.Contains(threats, "link of") || !strings.Contains(threats, c.threat) {
			t.Errorf("%s: the threats are %q, want %q", c.name, threats, c.threat)
		}
		var text strings.Builder
		if err := r.Text(&text); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(page+threats+text.String(), "77 Mbit/s") {
			t.Errorf("%s: a sitting without trials is told of: %s %s %s", c.name, page, threats, text.String())
		}
		for _, l := range []Link{shaped, free, fast} {
			want := false // an unshaped link was not asked to be of some rate
			for _, x := range c.speeds {
				want = want || x.Link == l && l.Mbit > 0
			}
			if strings.Contains(text.String(), "link "+l.String()+": measured ") != want {
				t.Errorf("%s: the terminal says %q of %v", c.name, text.String(), l)
			}
		}
	}
}
