package ps

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/transport"
)

// A flooded job is one over real loops in virtual time, whose peers can be sent what nobody can read.
type flooded struct {
	*realJob
	logs    map[string]*sharedBuffer
	refused atomic.Int64 // by the server
	heard   atomic.Int64 // of these, such as were read
}

func newFlooded(t *testing.T) *flooded {
	j := &flooded{logs: map[string]*sharedBuffer{"server": {}, "clients": {}, "directory": {}}}
	log := func(of string) *slog.Logger { return slog.New(slog.NewTextHandler(j.logs[of], nil)) }
	j.realJob = newRealJob(t, transport.NewMemory(), simOptions{
		clients: 2, servers: 1, tables: []Spec{{Name: "t", Rows: 1, Cols: 4, Mode: ASP}}, client: Options{Log: log("clients")}, dir: DirectoryOptions{Log: log("directory")},
		server: ServerOptions{Log: log("server"), Trace: ServerTrace{Refused: func(_ Name, why string) {
			if j.refused.Add(1); !strings.Contains(why, "is heard no more") {
				j.heard.Add(1)
			}
		}}},
	})
	return j
}

// flood sends frames that nobody can read, and lets them come.
func (j *flooded) flood(from, to Name, kind uint8, frames int) {
	j.t.Helper()
	for range frames {
		if err := j.streams[from].Send(bg, to, transport.Frame{Kind: kind, Head: []byte{1}, Payload: []byte{255, 255, 255}}); err != nil {
			j.t.Fatal(err)
		}
	}
	time.Sleep(time.Second)
}

func (j *flooded) says(who, what string, times int) {
	j.t.Helper()
	if n := strings.Count(j.logs[who].String(), what); n != times {
		j.t.Errorf("the log of the %s has %q %d times, want %d:\n%s", who, what, n, times, j.logs[who])
	}
}

// round adds 1 to a cell as client k, and reads what all have added.
func (j *flooded) round(k int) (x float32, err error) {
	w, err := j.clients[k].Worker(bg)
	if err != nil {
		return 0, err
	}
	tab, row := tableOf[float32](w, "t"), make([]float32, 4)
	if err := tab.Inc(0, 0, 1); err != nil {
		return 0, err
	}
	if _, err := w.Clock(bg); err != nil {
		return 0, err
	}
	_, err = tab.Get(bg, 0, row)
	return row[0], err
}

// TestFloodOfClient: a client of which a server can read nothing is heard no more after so many frames. It is told, its calls end with a sentence,
// both logs have it, and no other client notices. When its link comes back it is heard again.
func TestFloodOfClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFlooded(t)
		defer j.close()
		j.flood(clientName(0), serverName(0), kindProbe, maxRefusals-1)
		if x, err := j.round(0); err != nil || x != 1 {
			t.Fatalf("before the last one, it reads %v: %v", x, err)
		}
		j.says("server", "hears a peer no more", 0)
		j.flood(clientName(0), serverName(0), kindProbe, 1)
		j.says("server", "ps: hears a peer no more", 1)
		j.says("clients", "ps: a peer hears this process no more", 1)
		_, err := j.round(0)
		for _, want := range []string{"j/worker/0 has sent 256 to j/server/0, which hears it no more", fmt.Sprintf("kind %d", kindProbe)} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want it to say %q", err, want)
			}
		}
		j.flood(clientName(0), serverName(0), kindProbe, 1000)
		if all, read := j.refused.Load(), j.heard.Load(); all != maxRefusals+1000 || read != maxRefusals {
			t.Errorf("%d frames are counted, %d of them read; want %d and %d", all, read, maxRefusals+1000, maxRefusals)
		}
		j.says("server", "ps: refused a frame", 2)
		if x, err := j.round(1); err != nil || x != 2 {
			t.Errorf("the other client reads %v: %v", x, err)
		}
		if _, err := j.dir.Config(bg); err != nil {
			t.Error(err)
		}

		i := len(j.ports) - 2 // client 0's
		if err := j.ports[i].Close(); err != nil {
			t.Fatal(err)
		}
		p, err := j.net.Open(bg, clientName(0), transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		j.ports[i] = p
		if err := p.Know(serverName(0), "memory:"+serverName(0).String()); err != nil {
			t.Fatal(err)
		}
		if j.streams[clientName(0)], err = p.Stream("ps", StreamOptions()); err != nil {
			t.Fatal(err)
		}
		j.flood(clientName(0), serverName(0), kindProbe, 1)
		j.says("server", "ps: hears a peer again", 1)
		if n := j.heard.Load(); n != maxRefusals+1 {
			t.Errorf("%d frames are read, want %d", n, maxRefusals+1)
		}
	})
}

// TestFloodOfServer: clients cannot do without a server: of one that sends them what they cannot read they hear no more, say so, and end.
func TestFloodOfServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFlooded(t)
		defer j.close()
		j.flood(serverName(0), clientName(1), kindClocks, maxRefusals)
		j.says("clients", "ps: hears a peer no more", 1)
		j.says("server", "ps: a peer hears this process no more", 1)
		if _, err := j.round(1); err == nil || !strings.Contains(err.Error(), "j/server/0 has sent 256 to j/worker/1, which hears it no more") {
			t.Errorf("its client: %v", err)
		}
		if x, err := j.round(0); err != nil || x != 1 {
			t.Errorf("the other client reads %v: %v", x, err)
		}
	})
}

// TestFloodOfDirectory: without the answers of a server nothing can be decided: the directory says so to all.
func TestFloodOfDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFlooded(t)
		defer j.close()
		j.flood(serverName(0), dirName(), kindAccept, maxRefusals)
		j.says("directory", "ps: hears a peer no more", 1)
		const want = "j/server/0 has sent 256 to j/directory/0, which hears it no more"
		if _, err := j.dir.Snapshot(bg, newMemory()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a snapshot: %v", err)
		}
		for k := range 2 {
			if _, err := j.round(k); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("client %d: %v", k, err)
			}
		}
	})
}
