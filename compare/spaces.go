package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/trivium-ml/trivium/cluster/launch"
)

// Spaces are network namespaces that are joined by a switch, each with one shaped link to it: one for each process of a row. They last
// as long as this process, however it ends.
type spaces struct {
	link Link
	list []*space // one for each process
	hub  *space   // the switch
}

// at returns the address of space i.
func (s *spaces) at(i int) string { return fmt.Sprintf("10.77.0.%d", i+2) }

// spaceInterface is the name of the link within each.
const spaceInterface = "eth0"

// spaced is a launcher whose processes each get a network namespace, in the order of their start.
type spaced struct {
	launch.Launcher
	spaces *spaces
	next   *atomic.Int64
}

// Start implements launch.Launcher.
func (s spaced) Start(ctx context.Context, spec launch.Spec) (*launch.Process, error) {
	i := int(s.next.Add(1)) - 1
	if i >= len(s.spaces.list) {
		return nil, fmt.Errorf("compare: there are %d network namespaces, and process %d wants one", len(s.spaces.list), i)
	}
	spec.Space = s.spaces.list[i].path
	return s.Launcher.Start(ctx, spec)
}

// joinNetwork decides, before the first trial, how processes reach each other, and says so.
func (r *runner) joinNetwork(ctx context.Context) {
	r.spaces = map[Link]*spaces{}
	note := func(text string) {
		r.plan.Watch.Note(text)
		if !slices.Contains(r.dir.record.Notes, text) {
			r.dir.record.Notes = append(r.dir.record.Notes, text)
		}
	}
	if r.plan.Host.Launcher != nil {
		return
	}
	most := slices.Max(r.plan.Workers)
	for _, s := range r.plan.Systems {
		most = max(most, slices.Max(r.plan.Workers)+s.About().Server+1) // a peer may have a scheduler
	}
	if r.plan.Full { // its cells have 5 workers
		most = max(most, 8)
	}
	probe, err := newSpaces(ctx, Link{Apart: true}, most)
	if err != nil {
		if ctx.Err() == nil { // else it was not let finish
			note(fmt.Sprintf("network: not measured, and links are not shaped: %v; processes talk over the loopback of this machine", err))
		}
		return
	}
	r.spaces[Link{Apart: true}] = probe
	for i, l := range r.plan.Links {
		if l.Mbit == 0 {
			r.plan.Links[i].Apart = true
		}
	}
}

// space returns the namespaces of a link; nil: there are none.
func (r *runner) space(ctx context.Context, link Link) (*spaces, error) {
	if !link.Apart && link.Mbit == 0 {
		return nil, nil
	}
	link.Apart = true
	if s, ok := r.spaces[link]; ok {
		return s, nil
	}
	one, ok := r.spaces[Link{Apart: true}]
	if !ok && link.Mbit == 0 {
		return nil, nil
	}
	if !ok {
		return nil, errors.New("not measured: network namespaces are not permitted here, so the link cannot be shaped")
	}
	s, err := newSpaces(ctx, link, len(one.list))
	if err == nil {
		r.spaces[link] = s
	}
	return s, err
}

// measureLink measures the link of those namespaces once in a sitting, before its first trial there, and keeps what it finds, which is no reason to
// end the comparison. An error is ctx's, or of the disk.
func (r *runner) measureLink(ctx context.Context, s *spaces) error {
	if s == nil || len(s.list) < 2 {
		return nil
	}
	list := &r.dir.record.LinkSpeeds
	if slices.ContainsFunc(*list, func(x LinkSpeed) bool { return x.Link == s.link && x.Sitting == r.sitting }) {
		return nil
	}
	x := LinkSpeed{Link: s.link, Sitting: r.sitting}
	var err error
	if x.Mbit, x.RoundTrip, err = s.speed(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		x = LinkSpeed{Link: s.link, Sitting: r.sitting, NotMeasured: err.Error()}
	}
	*list = append(*list, x)
	return r.dir.save()
}
