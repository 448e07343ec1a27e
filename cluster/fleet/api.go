package fleet

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/trivium-ml/trivium/cluster/trust"
)

// Handler serves the control API, over TLS with trust.Identity.OpenConfig:
//
//	POST /v1/join                 a certificate for the token's holder: package trust
//	GET  /v1/status               Status
//	POST /v1/jobs                 Spec; answers with the Job
//	GET  /v1/jobs/{id}            Job
//	POST /v1/jobs/{id}/cancel     answers with the Job
//	GET  /v1/jobs/{id}/log        its lines, as text; ?follow=1: until it ends
//	GET  /v1/jobs/{id}/files      what it left, as a tar archive
//	POST /v1/sent                 data for a job, which is to come within an hour; answers with {"id": ...}
//
// All but the first want a certificate of the cluster. Who shows none has ten seconds for a request. An error is {"error": ...}, with a
// status that fits: 5xx where it is the coordinator's and not the request's.
func (c *Coordinator) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /v1/join", c.o.Issuer)
	known := func(pattern string, f func(w http.ResponseWriter, r *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
				answerError(w, http.StatusUnauthorized, errors.New("show a certificate of the cluster: join with its token"))
				return
			}
			if _, err := trust.PeerName(*r.TLS); err != nil {
				answerError(w, http.StatusForbidden, err)
				return
			}
			if err := f(w, r); err != nil {
				answerError(w, codeOf(err), err)
			}
		})
	}
	known("GET /v1/status", func(w http.ResponseWriter, r *http.Request) error {
		s, err := c.Status(r.Context())
		if err != nil {
			return &unavailable{err}
		}
		return answer(w, s)
	})
	known("POST /v1/jobs", func(w http.ResponseWriter, r *http.Request) error {
		var s Spec
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSpec))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			return fmt.Errorf("the job: %w", err)
		}
		j, err := c.Submit(s)
		if err != nil {
			return err
		}
		return answer(w, j)
	})
	known("GET /v1/jobs/{id}", func(w http.ResponseWriter, r *http.Request) error {
		j, err := c.job(r.PathValue("id"))
		if err != nil {
			return err
		}
		return answer(w, j)
	})
	known("POST /v1/jobs/{id}/cancel", func(w http.ResponseWriter, r *http.Request) error {
		j, err := c.Cancel(r.PathValue("id"))
		if err != nil {
			return err
		}
		return answer(w, j)
	})
	known("GET /v1/jobs/{id}/log", c.serveLog)
	known("GET /v1/jobs/{id}/files", c.serveFiles)
	known("POST /v1/sent", c.takeSent)
	return bounded(mux)
}

// strangerWait is how long who shows no certificate may take for a request and its answer.
const strangerWait = 10 * time.Second

// bounded gives strangers no longer for a whole request: its body is read whatever the answer, and one that stops in the middle would
// hold its connection for ever. Who belongs to the cluster takes as long as data does, or a log that is followed.
func bounded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			c, limit := http.NewResponseController(w), time.Now().Add(strangerWait)
			_ = errors.Join(c.SetReadDeadline(limit), c.SetWriteDeadline(limit)) // what has neither is no connection
		}
		h.ServeHTTP(w, r)
	})
}

const (
	maxSpec = 4 << 20
	maxSent = 1 << 40
)

func answer(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}

func answerError(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()}) // a client that is gone hears nothing
}

// An unavailable coordinator cannot answer yet, or not any more.
type unavailable struct{ error }

func (e *unavailable) Unwrap() error { return e.error }

// codeOf is the status that fits an error: it says who is to mend it.
func codeOf(err error) int {
	_, missing := errors.AsType[errNoJob](err)
	_, away := errors.AsType[*unavailable](err)
	_, disk := errors.AsType[*fs.PathError](err)
	switch {
	case missing:
		return http.StatusNotFound
	case away:
		return http.StatusServiceUnavailable
	case disk:
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

func (c *Coordinator) job(id string) (Job, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.queue.Find(id)
	if j == nil {
		return Job{}, errNoJob(id)
	}
	return *j, nil
}

func (c *Coordinator) serveLog(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if _, err := c.job(id); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	flush := func() { _ = http.NewResponseController(w).Flush() }
	follow := r.URL.Query().Get("follow") != ""
	if l := c.logOf(id); l != nil {
		if err := l.copyTo(r.Context(), w, follow, flush); err != nil {
			if r.Context().Err() == nil { // it is not the reader who is gone
				c.log.Warn("the log of a job was not sent whole", "job", id, "error", err)
			}
			panic(http.ErrAbortHandler) // so that a reader sees a broken stream, not the end of the job
		}
	}
	c.mu.Lock()
	out := c.out
	c.mu.Unlock()
	if follow && out { // this coordinator is gone before who follows could ask more: the next one knows what became of the job
		panic(http.ErrAbortHandler)
	}
	return nil
}

// serveFiles sends the files of a job's folder.
func (c *Coordinator) serveFiles(w http.ResponseWriter, r *http.Request) error {
	j, err := c.job(r.PathValue("id"))
	if err != nil {
		return err
	}
	if !j.State.Ended() {
		return fmt.Errorf("%s has not ended yet: it is %s", j.ID, j.State)
	}
	w.Header().Set("Content-Type", "application/x-tar")
	if err := Pack(fetching{w, c}, c.jobDir(j.ID)); err != nil {
		c.log.Warn("the files of a job were not sent whole", "job", j.ID, "error", err)
		panic(http.ErrAbortHandler) // so that the reader sees a broken stream, not a short archive
	}
	return nil
}

// fetching are files on their way.
type fetching struct {
	io.Writer
	c *Coordinator
}

func (f fetching) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	f.c.mu.Lock()
	f.c.left = time.Now()
	f.c.mu.Unlock()
	return n, err
}

// takeSent keeps the body of a request for a job to come.
func (c *Coordinator) takeSent(w http.ResponseWriter, r *http.Request) error {
	id := rand.Text()
	if err := os.MkdirAll(filepath.Join(c.o.Dir, sentDir), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(c.sentFile(id), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, http.MaxBytesReader(w, r.Body, maxSent))
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("what was sent did not arrive whole: %w", err), os.Remove(f.Name()))
	}
	c.mu.Lock()
	c.sent[id] = time.Now()
	c.mu.Unlock()
	return answer(w, map[string]string{"id": id})
}
