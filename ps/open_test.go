package ps

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
)

// share opens a host on a network in memory, for as long as the test runs. It knows where these are.
func share(t *testing.T, network *transport.Memory, name Name, known ...Name) *Host {
	t.Helper()
	port, err := network.Open(t.Context(), name, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Close() })
	for _, n := range known {
		if err := port.Know(n, "memory:"+n.String()); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := port.Stream("ps", StreamOptions())
	if err != nil {
		t.Fatal(err)
	}
	h := Share(stream, nil)
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// TestOpenOfStrangers: who does not know where the directory is, or a server, is told so at once: nobody will call him.
func TestOpenOfStrangers(t *testing.T) {
	for _, stranger := range []string{"directory", "server"} {
		t.Run(stranger, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(bg, time.Hour)
				defer cancel()
				network := transport.NewMemory()
				p := Placement{Directory: dirName(), Servers: []Name{serverName(0)}, Clients: []Name{clientName(0)}}
				hosts := map[Name]*Host{}
				for _, name := range []Name{dirName(), serverName(0), clientName(0)} {
					known := []Name{dirName(), serverName(0)}
					if name == clientName(0) {
						known = slices.DeleteFunc(known, func(n Name) bool { return n.Role == stranger })
					}
					hosts[name] = share(t, network, name, known...)
				}
				if _, err := hosts[dirName()].Direct(p, DirectoryOptions{}); err != nil {
					t.Fatal(err)
				}
				served := make(chan error, 1)
				go func() { served <- hosts[serverName(0)].Serve(ctx, p, ServerOptions{}) }()
				begun := time.Now()
				c, err := hosts[clientName(0)].Open(ctx, p, []Spec{{Name: "n", Rows: 1, Cols: 4}}, Options{})
				if err == nil {
					w, openErr := c.Worker(ctx)
					if openErr != nil {
						t.Fatal(openErr)
					}
					_, err = tableOf[float32](w, "n").Get(ctx, 0, make([]float32, 4))
				}
				if !errors.Is(err, transport.ErrUnknownPeer) || !strings.Contains(err.Error(), "j/"+stranger+"/0") || time.Since(begun) > time.Second {
					t.Errorf("after %v: %v", time.Since(begun), err)
				}
				cancel()
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestOpenBeforeAll: a client may ask before anyone is there who could let it in.
func TestOpenBeforeAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		defer cancel()
		network := transport.NewMemory()
		p := Placement{Directory: dirName(), Servers: []Name{serverName(0)}, Clients: []Name{clientName(0)}}
		opened := make(chan error, 1)
		client := share(t, network, clientName(0), dirName(), serverName(0))
		go func() {
			_, err := client.Open(ctx, p, nil, Options{})
			opened <- err
		}()
		time.Sleep(time.Minute)
		if _, err := share(t, network, dirName(), dirName(), serverName(0)).Direct(p, DirectoryOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		server, served := share(t, network, serverName(0), dirName(), serverName(0)), make(chan error, 1)
		go func() { served <- server.Serve(ctx, p, ServerOptions{}) }()
		if err := <-opened; err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestOpenOfNoDirectory: who takes a server for the directory, which another is, goes on asking, and is told who is when he gives up.
func TestOpenOfNoDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		network := transport.NewMemory()
		hosts := map[Name]*Host{}
		for _, name := range []Name{serverName(0), clientName(0)} {
			hosts[name] = share(t, network, name, serverName(0))
		}
		p := Placement{Directory: dirName(), Servers: []Name{serverName(0)}, Clients: []Name{clientName(0)}}
		served := make(chan error, 1)
		go func() { served <- hosts[serverName(0)].Serve(ctx, p, ServerOptions{}) }()
		q := p
		q.Directory = serverName(0)
		short, end := context.WithTimeout(ctx, time.Minute)
		defer end()
		_, err := hosts[clientName(0)].Open(short, q, nil, Options{})
		if want := "j/server/0 is no directory: its placement names j/directory/0"; !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to say %q", err, want)
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestSecondDirectory: servers follow one directory. Who is let in by another, or asks it for a table, is told so, and those whom the first
// let in go on.
func TestSecondDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		defer cancel()
		network := transport.NewMemory()
		hosts := map[Name]*Host{}
		for _, name := range []Name{dirName(), serverName(0), clientName(0), clientName(1)} {
			hosts[name] = share(t, network, name, dirName(), serverName(0))
		}
		p := Placement{Directory: dirName(), Servers: []Name{serverName(0)}, Clients: []Name{clientName(0)}}
		tables := []Spec{{Name: "n", Rows: 1, Cols: 4}}
		served := make(chan error, 1)
		go func() { served <- hosts[serverName(0)].Serve(ctx, p, ServerOptions{}) }()
		first, err := hosts[dirName()].Direct(p, DirectoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := hosts[clientName(0)].Open(ctx, p, tables, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := hosts[dirName()].Direct(p, DirectoryOptions{}); err != nil {
			t.Fatal(err)
		}
		const want = "ps: j/server/0 follows a directory that was at j/directory/0 before this one, and nobody succeeds it"
		if _, err := hosts[clientName(1)].Open(ctx, p, tables, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a new client: %v, want it to say %q", err, want)
		}
		if err := c.CreateTable(ctx, Spec{Name: "late", Rows: 1, Cols: 4}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a new table: %v, want it to say %q", err, want)
		}
		w, err := c.Worker(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cells := make([]float32, 4)
		if err := errors.Join(tableOf[float32](w, "n").Inc(0, 2, 1), w.Barrier(ctx)); err != nil {
			t.Error(err)
		}
		if _, err := tableOf[float32](w, "n").Get(ctx, 0, cells); err != nil || cells[2] != 1 {
			t.Errorf("the old client reads %v: %v", cells, err)
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestCreateTable: workers have a table once CreateTable returns. The same definition again is no error, another is.
func TestCreateTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		defer cancel()
		self := serverName(0)
		host := share(t, transport.NewMemory(), self)
		p := Placement{Directory: self, Servers: []Name{self}, Clients: []Name{self}}
		if _, err := host.Direct(p, DirectoryOptions{}); err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- host.Serve(ctx, p, ServerOptions{}) }()
		c, err := host.Open(ctx, p, nil, Options{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := c.Worker(ctx)
		if err != nil {
			t.Fatal(err)
		}
		late := Spec{Name: "late", Rows: 2, Cols: 3, Mode: BSP}
		other := late
		other.Cols = 4
		if err := errors.Join(c.CreateTable(ctx, late), c.CreateTable(ctx, late)); err != nil {
			t.Fatal(err)
		}
		if err := c.CreateTable(ctx, other); err == nil || !strings.Contains(err.Error(), "cols") {
			t.Errorf("another definition: %v, want it to name cols", err)
		}
		tab, row := tableOf[float32](w, "late"), make([]float32, 3)
		if err := tab.Inc(1, 2, 5); err != nil {
			t.Error(err)
		}
		if _, err := w.Clock(ctx); err != nil {
			t.Error(err)
		}
		if _, err := tab.Get(ctx, 1, row); err != nil || row[2] != 5 {
			t.Errorf("a worker reads %v, %v, want 5 in cell 2", row, err)
		}
		if err := errors.Join(w.Finish(ctx), c.Close()); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestOpenInVain: who gives up is told why the directory was not reached, as far as is known.
func TestOpenInVain(t *testing.T) {
	lost := protocol.LinkLost{Peer: dirName(), Err: errors.New("j/directory/0 at tcp:127.0.0.1:9: connection refused")}
	for _, c := range []struct {
		name   string
		before []protocol.Event
		want   string
	}{
		{"nobody listens", []protocol.Event{lost}, "connection refused"},
		{"silence", nil, "j/directory/0 has not let it in, as it does once all servers are there"},
		{"it is back", []protocol.Event{lost, protocol.LinkBack{Peer: dirName()}}, "j/directory/0 has not let it in, as it does once all servers are there"},
		{"another", []protocol.Event{protocol.LinkLost{Peer: serverName(0), Err: io.EOF}}, "j/directory/0 has not let it in, as it does once all servers are there"},
	} {
		s, err := NewClientState(Placement{Directory: dirName(), Servers: []Name{serverName(0)}}, clientName(0), nil, Options{})
		if err != nil {
			t.Fatal(err)
		}
		s.Step(0, protocol.Start{})
		s.Step(0, protocol.Call{ID: 1, Arg: openCall{}})
		for _, ev := range c.before {
			s.Step(0, ev)
		}
		for _, out := range s.Step(time.Second, protocol.Call{Arg: cancelCall{1, context.DeadlineExceeded}}) {
			if a, ok := out.(protocol.Answer); ok {
				err = a.Err
			}
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to say %q", c.name, err, c.want)
		}
	}
}
