package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/transport"
)

// Options of a server. The zero value works.
type Options struct {
	Log *slog.Logger // refused requests; nil discards
}

const (
	maxServed = 64 // requests at once; more wait in the stream
	maxWrites = 16 // objects that a peer may be writing at once
)

// Serve gives store to the peers of s, which is its alone, until ctx ends or s is closed.
func Serve(ctx context.Context, store blob.Store, s transport.Stream, o Options) error {
	v := &server{
		store: store, s: s, o: o, writes: map[writeID]*write{}, slots: make(chan struct{}, maxServed),
	}
	if v.o.Log == nil {
		v.o.Log = slog.New(slog.DiscardHandler)
	}
	defer v.end()
	for {
		ev, err := s.Recv(ctx)
		if err != nil {
			return err
		}
		switch ev.What {
		case transport.LinkLost:
			v.drop(ev.From)
		case transport.Received:
			select {
			case v.slots <- struct{}{}:
			case <-ctx.Done():
				ev.Release()
				return ctx.Err()
			}
			q, err := decodeRequest(ev.Kind, ev.Head)
			if err == nil && q.kind == begin { // here, so that a LinkLost which comes next finds it
				err = v.begin(ctx, writeID{ev.From, uint64(ev.Op)}, q)
			}
			v.wait.Go(func() {
				defer func() { <-v.slots }()
				defer ev.Release()
				v.answer(ctx, &ev, q, err)
			})
			continue
		}
		ev.Release()
	}
}

type server struct {
	store blob.Store
	s     transport.Stream
	o     Options
	slots chan struct{}
	wait  sync.WaitGroup

	mu     sync.Mutex
	writes map[writeID]*write
	ended  bool // no write is begun any more
}

type writeID struct {
	peer transport.Name
	op   uint64
}

// A write is an object on its way into the store: what is written to the pipe, the store reads.
type write struct {
	pipe *io.PipeWriter
	done chan struct{} // closed when the store has read all, or refused
	err  error         // its verdict, once done
}

var errAborted = errors.New("the write was given up")

// answer does what is asked, unless that has failed already, and says so.
func (v *server) answer(ctx context.Context, ev *transport.Event, q request, err error) {
	var payload []byte
	if err == nil {
		payload, err = v.do(ctx, ev, q)
	}
	if err != nil {
		v.o.Log.Debug("blob request refused", "peer", ev.From.String(), "key", q.key, "error", err)
	}
	err = v.send(ctx, ev.From, transport.Frame{Kind: ev.Kind | answer, Key: ev.Key, Head: appendError(nil, err), Payload: payload})
	if errors.Is(err, transport.ErrTooLarge) { // who asked is to hear so
		err = v.send(ctx, ev.From, transport.Frame{Kind: ev.Kind | answer, Key: ev.Key, Head: appendError(nil, err)})
	}
	if err != nil && ctx.Err() == nil {
		v.o.Log.Warn("blob answer not sent", "peer", ev.From.String(), "key", q.key, "error", err)
	}
}

// answerWait is for how long an answer that is ready is still sent after the end of Serve's context.
const answerWait = time.Second

// send sends an answer. Somebody waits for it, and what it answers may be the very word that ends this server.
func (v *server) send(ctx context.Context, to transport.Name, f transport.Frame) error {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	over := context.AfterFunc(ctx, func() { time.AfterFunc(answerWait, cancel) })
	defer over()
	return v.s.Send(sending, to, f)
}

func (v *server) do(ctx context.Context, ev *transport.Event, q request) ([]byte, error) {
	id := writeID{ev.From, q.write}
	switch q.kind {
	case get:
		r, err := v.store.Get(ctx, q.key, q.from, q.length)
		if err != nil {
			return nil, err
		}
		p, err := io.ReadAll(io.LimitReader(r, q.length))
		return p, errors.Join(err, r.Close())
	case list:
		objects, err := v.store.List(ctx, q.key)
		if err != nil {
			return nil, err
		}
		p := appendObjects(nil, objects)
		if len(objects) > maxObjects || len(p) > Piece {
			return nil, fmt.Errorf("blob: %d objects begin with %q: more than can be listed from afar", len(objects), q.key)
		}
		return p, nil
	case remove:
		return nil, v.store.Delete(ctx, q.key)
	case begin:
		return nil, nil // it has
	case piece:
		w, err := v.find(id, false)
		if err != nil {
			return nil, err
		}
		_, err = w.pipe.Write(ev.Payload)
		return nil, err
	case commit:
		w, err := v.find(id, true)
		if err != nil {
			return nil, err
		}
		_ = w.pipe.Close() // never fails
		<-w.done
		return nil, w.err
	default: // abort
		if w, err := v.find(id, true); err == nil {
			w.abort()
		}
		return nil, nil
	}
}

func (v *server) begin(ctx context.Context, id writeID, q request) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended {
		return errAborted
	}
	if v.writes[id] != nil {
		return fmt.Errorf("blob: write %d of %v has begun already", id.op, id.peer)
	}
	open := 0
	for other := range v.writes {
		if other.peer == id.peer {
			open++
		}
	}
	if open >= maxWrites {
		return fmt.Errorf("blob: %v writes %d objects already: at most %d at once", id.peer, open, maxWrites)
	}
	r, pipe := io.Pipe()
	w := &write{pipe: pipe, done: make(chan struct{})}
	v.writes[id] = w
	v.wait.Go(func() {
		put := v.store.Put
		if q.absent {
			put = v.store.PutIfAbsent
		}
		w.err = put(ctx, q.key, r)
		r.CloseWithError(cmp.Or(w.err, errAborted)) // pieces that still come are refused with the cause
		close(w.done)
	})
	return nil
}

// find returns an open write; for its last request it takes it out.
func (v *server) find(id writeID, last bool) (*write, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w := v.writes[id]
	if w == nil {
		return nil, fmt.Errorf("blob: write %d of %v is not open: the link was lost in between, or it ended", id.op, id.peer)
	}
	if last {
		delete(v.writes, id)
	}
	return w, nil
}

func (w *write) abort() {
	w.pipe.CloseWithError(errAborted)
	<-w.done
}

// drop forgets what a lost peer was writing.
func (v *server) drop(peer transport.Name) {
	v.mu.Lock()
	var lost []*write
	for id, w := range v.writes {
		if id.peer == peer {
			lost = append(lost, w)
			delete(v.writes, id)
		}
	}
	v.mu.Unlock()
	for _, w := range lost {
		w.abort()
	}
}

// end gives up all writes and waits for what runs.
func (v *server) end() {
	v.mu.Lock()
	v.ended = true
	for id, w := range v.writes {
		w.pipe.CloseWithError(errAborted)
		delete(v.writes, id)
	}
	v.mu.Unlock()
	v.wait.Wait()
}
