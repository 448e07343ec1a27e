package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/trivium-ml/trivium/cluster/trust"
)

// A Client speaks a coordinator's API.
type Client struct {
	addr string
	http *http.Client
}

// CoordinatorName is the coordinator's in its certificate.
var CoordinatorName = trust.Name{Role: trust.CoordinatorRole, ID: "0"}

// IdleWait is how long a coordinator's server keeps a connection between two requests.
const IdleWait = time.Minute

// NodeRole is the role of machines in their certificates.
const NodeRole = "node"

// NewClient returns a client of the coordinator at addr, host and port, known by self's certificate.
func NewClient(addr string, self *trust.Identity) *Client {
	return &Client{addr: addr, http: &http.Client{Transport: &http.Transport{
		TLSClientConfig: self.ClientConfig(CoordinatorName), TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: time.Minute,
		IdleConnTimeout: IdleWait / 2, // none is used as the coordinator closes it
	}}}
}

// Close lets go of the connections that wait.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// A RemoteError is what the coordinator answers to a request that it refuses, or that it cannot do.
type RemoteError struct {
	Code int // of HTTP: from 500 on the request may be as it should
	Text string
}

func (e *RemoteError) Error() string {
	if e.Code >= http.StatusInternalServerError {
		return "fleet: at the coordinator: " + e.Text
	}
	return "fleet: the coordinator refuses: " + e.Text
}

// call sends a request. The caller closes the body.
func (c *Client) call(ctx context.Context, method, path string, body io.Reader) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://"+c.addr+path, body)
	if err != nil {
		return nil, err
	}
	a, err := c.http.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, fmt.Errorf("fleet: the coordinator at %s: %w", c.addr, err)
	}
	if a.StatusCode == http.StatusOK {
		return a.Body, nil
	}
	defer a.Body.Close()
	var e struct{ Error string }
	p, err := io.ReadAll(io.LimitReader(a.Body, 64<<10))
	if err == nil {
		err = json.Unmarshal(p, &e)
	}
	if err != nil || e.Error == "" {
		e.Error = a.Status
	}
	return nil, &RemoteError{a.StatusCode, e.Error}
}

func (c *Client) get(ctx context.Context, method, path string, body io.Reader, v any) error {
	b, err := c.call(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := json.NewDecoder(b).Decode(v); err != nil {
		return fmt.Errorf("fleet: the answer of the coordinator at %s: %w", c.addr, err)
	}
	return nil
}

// Status returns what there is.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.get(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Submit submits a job.
func (c *Client) Submit(ctx context.Context, s Spec) (j Job, err error) {
	p, err := json.Marshal(s)
	if err != nil {
		return j, err
	}
	return j, c.get(ctx, http.MethodPost, "/v1/jobs", bytes.NewReader(p), &j)
}

// Job returns a job.
func (c *Client) Job(ctx context.Context, id string) (j Job, err error) {
	return j, c.get(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(id), nil, &j)
}

// Cancel cancels a job.
func (c *Client) Cancel(ctx context.Context, id string) (j Job, err error) {
	return j, c.get(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(id)+"/cancel", nil, &j)
}

// Log writes a job's lines to w: those that there are, or, if it is to follow, all until the job has ended.
func (c *Client) Log(ctx context.Context, id string, follow bool, w io.Writer) error {
	path := "/v1/jobs/" + url.PathEscape(id) + "/log"
	if follow {
		path += "?follow=1"
	}
	b, err := c.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer b.Close()
	_, err = io.Copy(w, b)
	if errors.Is(err, io.ErrUnexpectedEOF) { // the coordinator went before the job had ended
		err = errors.New("it broke off")
	}
	if err != nil {
		return fmt.Errorf("fleet: the log of %s from the coordinator at %s: %w", id, c.addr, err)
	}
	return nil
}

// Send sends a file for a job to come, and returns its id: for a Spec's Data or Resume.
func (c *Client) Send(ctx context.Context, r io.Reader) (string, error) {
	var a struct{ ID string }
	err := c.get(ctx, http.MethodPost, "/v1/sent", r, &a)
	return a.ID, err
}

// Files writes what an ended job left into dir, which is made.
func (c *Client) Files(ctx context.Context, id, dir string) error {
	b, err := c.call(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(id)+"/files", nil)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := Unpack(b, dir); err != nil {
		return fmt.Errorf("fleet: the files of %s: %w", id, err)
	}
	return nil
}
