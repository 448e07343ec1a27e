package transport

import (
	"fmt"
	"io"
	"net"
	"time"
)

// judge says whether a dial of the peer may become its link. peer.mu is held.
func (pr *peer) judge(h *hello) error {
	l := pr.link
	switch {
	case pr.gone != nil || pr.shutting:
		return &RefusedError{"closed", "this port is closing"}
	case pr.attempting && less(pr.port.self, pr.name):
		return errBusy
	case !l.up:
		return nil
	case pr.instance != h.instance:
		return &RefusedError{"duplicate", fmt.Sprintf("%v is connected already, from another process: give this one another ID, or a higher incarnation", pr.name)}
	case l.inbound && h.attempt <= l.attempt, !l.inbound && h.last != l.id:
		return errBusy // it dialled before it knew of the link that is up
	}
	return nil
}

// needless reports whether a dial of the peer is none that it still needs.
func (pr *peer) needless() bool {
	pr.mu.Lock()
	defer pr.unlock()
	return pr.gone != nil || pr.shutting || pr.link.up || pr.attempting || pr.half != nil || pr.left
}

// establish makes two connections the peer's link.
func (pr *peer) establish(h *hello, inbound bool, id [16]byte, ctl, dat [2]net.Conn, shared sharedPath, life net.Conn, addr string) error {
	p := pr.port
	p.mu.RLock()
	pr.mu.Lock()
	defer pr.unlockBoth()
	instance := h.answered
	if inbound {
		instance = h.instance
		if err := pr.judge(h); err != nil {
			return err
		}
	} else if pr.gone != nil || pr.link.up {
		return errBusy
	}
	if inbound && pr.cancel != nil {
		// Our own dial gives way. It gets the time to be told so: cut off at once, it looks like a stranger's to the other end.
		pr.attempting = false
		time.AfterFunc(dialGrace, pr.cancel)
	}
	if pr.link.up {
		pr.lose(io.ErrUnexpectedEOF) // the peer has lost it, and dials anew
	}
	l := pr.link
	l.id, l.inbound, l.attempt, l.shared = id, inbound, h.attempt, shared
	l.sharedRefs.Store(1)
	l.life = life
	pr.last, pr.instance, pr.reported, pr.left = id, instance, [2]bool{}, false
	if pr.addr == "" {
		pr.addr = addr
	}
	for i, nc := range [2][2]net.Conn{data: dat, control: ctl} {
		half := l.half[i]
		half.nc, half.hard, half.sum = nc[0], nc[1], p.carrier.sum(nc[1], addr)
		_ = nc[1].SetDeadline(time.Time{}) // the handshake's; fails on a closed connection, as the next read does
		if nc[0] == nc[1] {
			half.try = newDirect(nc[0], p.pulse.beats)
			half.apart = isUnix(nc[0])
			if half.try != nil {
				p.conns.add(half.try)
			}
		}
	}
	pr.sums.Store(l.half[data].sum)
	if pr.lost {
		pr.lost = false
		p.reconnects.Add(1)
		for _, s := range p.streams {
			s.tell(LinkBack, pr.name, nil)
		}
	}
	for id, s := range p.streams {
		if s.name != "" {
			l.announce(id, s.o) // to be written by the goroutine below
		} else {
			s.outdate(pr.name) // else it might wait for ever more, and with some missing
		}
	}
	l.up, pr.since = true, time.Now()
	p.linked.Add(1)
	if pr.shutting {
		l.shut()
	}
	l.half[data].first = inbound
	for _, half := range l.half {
		half.r = newReader(half)
		p.wg.Go(half.run)
		p.wg.Go(half.read)
	}
	if life != nil {
		p.wg.Go(l.attend)
	}
	if p.carrier.life != nil {
		p.carrier.life.tend()
	}
	p.o.Log.Debug("transport: link", "peer", pr.name.String(), "inbound", inbound)
	return nil
}

// less orders names, for whose dial wins.
func less(a, b Name) bool {
	for _, c := range [][2]string{{a.Job, b.Job}, {a.Role, b.Role}, {a.ID, b.ID}} {
		if c[0] != c[1] {
			return c[0] < c[1]
		}
	}
	return a.Incarnation < b.Incarnation
}
