package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/cluster/fleet"
	"github.com/trivium-ml/trivium/cluster/trust"
)

// ended is a client of a coordinator that has one job, job-1, which is done. files answers who fetches what it left, who sends a file, and who submits.
func ended(t *testing.T, files http.HandlerFunc) *fleet.Client {
	t.Helper()
	return asked(t, fleet.Done, func(http.ResponseWriter, *http.Request) {}, files)
}

// asked is a client of a coordinator that has one job, job-1, in that state. log answers who wants what it prints, files as for ended.
func asked(t *testing.T, state fleet.State, log, files http.HandlerFunc) *fleet.Client {
	t.Helper()
	authority, err := trust.OpenAuthority(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	coordinator, err := authority.Identity(fleet.CoordinatorName, []string{"127.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	self, err := authority.Identity(trust.Name{Role: "client", ID: "1"}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/jobs/job-1/log", log)
	mux.HandleFunc("GET /v1/jobs/job-1", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(fleet.Job{ID: "job-1", State: state}) // who does not hear it fails
	})
	mux.HandleFunc("GET /v1/jobs/job-1/files", files)
	mux.HandleFunc("POST /v1/sent", files)
	mux.HandleFunc("POST /v1/jobs", files)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(tls.NewListener(l, coordinator.OpenConfig())) })
	client := fleet.NewClient(l.Addr().String(), self)
	t.Cleanup(func() {
		client.Close()
		_ = server.Close()
		serving.Wait()
	})
	return client
}

// TestFetchInterrupted: who interrupts while the run comes is told how to get it.
func TestFetchInterrupted(t *testing.T) {
	for _, files := range []string{"late", "none"} { // the answer then has an end all the same
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		client := ended(t, func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			if files == "late" {
				<-r.Context().Done()
			}
		})
		var out bytes.Buffer
		s := newSession(&out, &out, Options{})
		job := &training{out: t.TempDir(), show: newProgress(&out, false, false, func(string) string { return "" })}
		err := s.attend(ctx, job, client, "job-1", onFlags{On: "127.0.0.1:1", Token: "secret"})
		coded, ok := errors.AsType[*codedError](err)
		if !ok || coded.code != Interrupted || !strings.Contains(err.Error(), "job-1 is done, get its run with: trivium fetch job-1 --on 127.0.0.1:1 --token TOKEN") {
			t.Errorf("interrupted while it fetches, files %s: %v", files, err)
		}
	}
}

// TestFollowPastTheCoordinator: who follows a job that waits still when its coordinator ends is told how to follow it at the next, whether the
// log breaks off or ends.
func TestFollowPastTheCoordinator(t *testing.T) {
	const follow = "follow it with: trivium logs -f job-1 --on 127.0.0.1:1 --token TOKEN, then get its run with: trivium fetch job-1 "
	for want, log := range map[string]http.HandlerFunc{
		"broke off; once it is there again, learn what became of job-1: ": func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush() // who does not hear it fails
			panic(http.ErrAbortHandler)
		},
		"job-1 is queued; the next coordinator goes on with it: ": func(http.ResponseWriter, *http.Request) {},
	} {
		client := asked(t, fleet.Queued, log, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
		var out bytes.Buffer
		s := newSession(&out, &out, Options{})
		job := &training{out: t.TempDir(), show: newProgress(&out, false, false, func(string) string { return "" })}
		err := s.attend(t.Context(), job, client, "job-1", onFlags{On: "127.0.0.1:1", Token: "secret"})
		if !isLost(err) || !strings.Contains(err.Error(), want+follow) || strings.Contains(err.Error(), "EOF") {
			t.Errorf("it says %v; want %s%s", err, want, follow)
		}
	}
}

// TestFetchIntoBrackets: a folder's name is no pattern.
func TestFetchIntoBrackets(t *testing.T) {
	left := t.TempDir()
	if err := os.MkdirAll(filepath.Join(left, jobRuns, "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(left, jobRuns, "mine"), "result.json", "{}")
	client := ended(t, func(w http.ResponseWriter, _ *http.Request) {
		if err := fleet.Pack(w, left); err != nil {
			panic(http.ErrAbortHandler)
		}
	})
	out := filepath.Join(t.TempDir(), "second [of 2]")
	moved, err := fetchFiles(t.Context(), client, out, "job-1")
	if want := []string{filepath.Join(out, "mine")}; err != nil || !slices.Equal(moved, want) {
		t.Errorf("the run is in %q, want %q: %v", moved, want, err)
	}
	if _, err := os.Stat(filepath.Join(out, "mine", "result.json")); err != nil {
		t.Error(err)
	}
}

// TestFetchNothing: where nothing comes, no folder is made for it, and one that was there stays.
func TestFetchNothing(t *testing.T) {
	empty := t.TempDir()
	for name, files := range map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"no run": func(w http.ResponseWriter, _ *http.Request) {
			if err := fleet.Pack(w, empty); err != nil {
				panic(http.ErrAbortHandler)
			}
		},
	} {
		client := ended(t, files)
		fresh, there := filepath.Join(t.TempDir(), "runs"), t.TempDir()
		for _, out := range []string{fresh, there} {
			if moved, err := fetchFiles(t.Context(), client, out, "job-1"); len(moved) > 0 || (err == nil) != (name == "no run") {
				t.Errorf("%s: fetched %q, %v", name, moved, err)
			}
		}
		if _, err := os.Lstat(fresh); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a folder is left: %v", name, err)
		}
		if left, err := os.ReadDir(there); err != nil || len(left) > 0 {
			t.Errorf("%s: in a folder that was there: %v, %v", name, left, err)
		}
	}
}

// TestSendWhatCannotBeRead: rows that cannot be read are not the coordinator's loss.
func TestSendWhatCannotBeRead(t *testing.T) {
	client := ended(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	bad := errors.New("a.csv: line 7: it is another than when it was opened")
	_, err := sendWritten(t.Context(), client, func(w io.Writer) error {
		_, err := io.WriteString(w, "rows")
		return errors.Join(err, bad)
	})
	if !errors.Is(err, bad) || isLost(err) || strings.Contains(err.Error(), "coordinator") {
		t.Errorf("error %v", err)
	}
}

// TestSendRefused: who refuses a file ends its writer, which is gone when that is told: its rows may be closed.
func TestSendRefused(t *testing.T) {
	client := ended(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	var gone atomic.Bool
	_, err := sendWritten(t.Context(), client, func(w io.Writer) error {
		defer gone.Store(true)
		for rows := make([]byte, 1<<20); ; {
			if _, err := w.Write(rows); err != nil {
				return err
			}
		}
	})
	if err == nil || !gone.Load() {
		t.Errorf("error %v; its writer is gone: %v", err, gone.Load())
	}
}

// TestSubmitInterrupted: who interrupts while a job is taken hears its number all the same; who did so before submits none.
func TestSubmitInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := ended(t, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		if r.Context().Err() == nil {
			_ = json.NewEncoder(w).Encode(fleet.Job{ID: "job-2", State: fleet.Queued}) // who does not hear it fails
		}
	})
	if j, err := give(ctx, client, fleet.Spec{}); err != nil || j.ID != "job-2" {
		t.Errorf("%+v, %v", j, err)
	}
	j, err := give(ctx, client, fleet.Spec{})
	if coded, ok := errors.AsType[*codedError](err); !ok || coded.code != Interrupted || j.ID != "" {
		t.Errorf("interrupted before: %+v, %v", j, err)
	}
}
