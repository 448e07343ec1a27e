package app

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/cluster/fleet"
	"github.com/trivium-ml/trivium/cluster/trust"
)

// TestStatusFails: an address that is none is the user's mistake. Who follows is done when he interrupts, also while it asks; else he is told.
func TestStatusFails(t *testing.T) {
	authority, err := trust.OpenAuthority(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	self, err := authority.Identity(trust.Name{Role: "client", ID: "1"}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	client := fleet.NewClient("127.0.0.1:1", self)
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	v := statusVerb{Follow: true}
	if err := v.show(ctx, newSession(&out, &out, Options{}), client); err != nil {
		t.Errorf("interrupted while it asks: %v", err)
	}
	for code, want := range map[int]int{
		http.StatusBadRequest: Misused, http.StatusNotFound: Misused, http.StatusInternalServerError: Failed, http.StatusServiceUnavailable: Lost,
	} {
		err := clusterError(&fleet.RemoteError{Code: code})
		if coded, ok := errors.AsType[*codedError](err); err == nil || ok != (want != Failed) || ok && coded.code != want {
			t.Errorf("an answer of %d exits with %+v, want %d", code, coded, want)
		}
	}
	token := trust.Token{CA: authority.Hash()}.String()
	if got := runIn(t, t.TempDir(), "node", "--join", "127.0.0.1", "--token", token); got.code != Misused || !strings.Contains(got.err, "--join: want the coordinator as host:port") {
		t.Errorf("node without a port: exits with %d: %s", got.code, got.err)
	}
	for _, addr := range []string{"127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000"} {
		if got := runIn(t, t.TempDir(), "status", "--on", addr, "--token", token); got.code != Misused || !strings.Contains(got.err, "--on: want the coordinator as host:port") {
			t.Errorf("at %s: exits with %d: %s", addr, got.code, got.err)
		}
	}
	if got := runWith(ctx, t, t.TempDir(), Options{}, "status", "--on", "127.0.0.1:1", "--token", token); got.code != Interrupted {
		t.Errorf("interrupted before it asked: exits with %d: %s", got.code, got.err)
	}
}

// TestStatusText: a coordinator that does not watch a member says nothing of its last sign of life. Of a job it has the names by which other
// verbs know it: logs and cancel by its own, those that read runs by its run's, which one that makes none has not.
func TestStatusText(t *testing.T) {
	text := statusText(fleet.Status{Members: []fleet.MemberStatus{
		{Name: "0", Role: "coordinator", State: "fine", Addr: "here"},
		{Name: "a", Role: "node", State: "leaving", Heard: 17_600 * time.Microsecond, Addr: "there"},
		{Name: "b", Role: "node", State: "fine", Heard: -1, Addr: "yonder"},
		{Name: "c", Role: "node", State: "ended", Why: "exit status 3", Heard: -1, Addr: "gone"},
	}, Jobs: []fleet.Job{
		{ID: "job-1", Run: "mine", Name: "softmax", State: fleet.Done},
		{ID: "job-2", Name: "bench net", State: fleet.Queued, Why: "no machine is lent yet"},
		{ID: "job-3", Name: "mlp:20", State: fleet.Running, Progress: &fleet.Progress{Step: 4199, Steps: 10_000, SamplesSec: 20_500, Left: 95 * time.Second}},
		{ID: "job-4", Name: "svm", State: fleet.Running, Progress: &fleet.Progress{Step: 1200, Left: -1}},
	}})
	for _, want := range []string{
		"0 coordinator fine 0s ", "a node leaving 18ms ", "b node fine - ", " gone exit status 3", "JOB RUN MODEL STATE ", "job-1 mine softmax done ", "job-2 - bench net queued ",
		" DONE LEFT SAMPLES/S ", " 41 % 01:35 20.5k ", " 1,200 - 0",
	} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("want %q, found\n%s", want, text)
		}
	}
}
