package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/transport"
)

const deathChild = "transport-death-child"

// TestSharedOutlivesPeer: a payload that lies in the memory of a process is readable after that was killed, until Release.
func TestSharedOutlivesPeer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	p, err := transport.Unix{Dir: dir}.Open(ctx, transport.Name{ID: "parent"}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := p.Stream("test", transport.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSharedDeathChild$", "-test.count=1", "-test.timeout=2m", deathChild, dir, p.Addr())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it was killed, unless the test failed
		_ = cmd.Wait()
	}()
	const frames = 3
	var held []transport.Event
	for range frames {
		ev, err := s.Recv(ctx)
		if err != nil || ev.What != transport.Received {
			t.Fatalf("event %d: %v, %v", ev.What, ev.Err, err)
		}
		held = append(held, ev)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); { // until it has gone
		if strings.HasPrefix(lines.Text(), "FAIL") {
			t.Error("the child failed")
		}
	}
	for {
		ev, err := s.Recv(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ev.What == transport.LinkLost {
			break
		}
		ev.Release()
	}
	for i := range held {
		if want := bytes.Repeat([]byte{byte(i + 1)}, 1<<20); !bytes.Equal(held[i].Payload, want) {
			t.Errorf("frame %d changed when its sender died", i)
		}
		held[i].Release()
	}
}

// TestSharedDeathChild is the sender of TestSharedOutlivesPeer; as a test it does nothing.
func TestSharedDeathChild(t *testing.T) {
	i := slices.Index(os.Args, deathChild)
	if i < 0 {
		return
	}
	p, err := transport.Unix{Dir: os.Args[i+1]}.Open(t.Context(), transport.Name{ID: "child"}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Stream("test", transport.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	parent := transport.Name{ID: "parent"}
	if err := s.Know(parent, os.Args[i+2]); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		f := transport.Frame{Key: transport.Key{Chunk: uint32(i)}, Payload: bytes.Repeat([]byte{byte(i + 1)}, 1<<20)}
		if err := s.Send(t.Context(), parent, f); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("sent")
	_, _ = s.Recv(t.Context()) // until it is killed
}
