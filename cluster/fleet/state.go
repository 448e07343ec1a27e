package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/trivium-ml/trivium/internal/atomicfile"
)

// stateFile holds the jobs.
func (c *Coordinator) stateFile() string { return filepath.Join(c.o.Dir, "jobs.json") }

type state struct {
	Next int    `json:"next"`
	Jobs []*Job `json:"jobs"`
}

// save writes the jobs down, atomically. The caller holds the lock. Where it fails, the cluster goes on, and says so.
func (c *Coordinator) save() {
	p, err := json.MarshalIndent(state{c.queue.next, c.queue.jobs}, "", "\t")
	if err == nil {
		err = atomicfile.WriteBytes(c.stateFile(), p, atomicfile.Options{})
	}
	if err != nil {
		c.log.Error("the list of jobs is not saved: it will be lost with this process", "error", err)
	}
}

func (c *Coordinator) load() error {
	p, err := os.ReadFile(c.stateFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var s state
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(p))
		d.DisallowUnknownFields()
		err = d.Decode(&s)
	}
	if err != nil {
		return fmt.Errorf("fleet: %s: %w; move the file away to begin with no jobs", c.stateFile(), err)
	}
	c.queue.next, c.queue.jobs = s.Next, s.Jobs
	for _, j := range s.Jobs {
		path := filepath.Join(c.jobDir(j.ID), logName)
		if why := "the coordinator ended while it ran"; j.State == Running && !c.queue.Again(j, why) {
			c.queue.End(j, Forgotten, codeLost, why, time.Now())
		}
		if j.State.Ended() {
			c.logs[j.ID] = endedLog(path)
		} else if c.logs[j.ID], err = newJobLog(path); err != nil {
			return fmt.Errorf("fleet: %w", err)
		}
	}
	if err := c.dropUnwanted(); err != nil {
		return fmt.Errorf("fleet: files of jobs that are over: %w", err)
	}
	return nil
}
