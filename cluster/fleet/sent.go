package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// sentDir is the folder of the files that come with jobs.
const sentDir = "sent"

// sentFile is where the file of that id is. Without an id there is none.
func (c *Coordinator) sentFile(id string) string {
	if id == "" {
		return ""
	}
	return filepath.Join(c.o.Dir, sentDir, filepath.Base(id)+".sent") // a plain name, whatever a stranger's id is
}

// sent are the ids of the files that come with the job.
func (s *Spec) sent() []string {
	return slices.DeleteFunc([]string{s.Data, s.Resume}, func(id string) bool { return id == "" })
}

// dropSent removes files that came with a job which will not run, or not again.
func (c *Coordinator) dropSent(ids ...string) {
	for _, id := range ids {
		if err := os.Remove(c.sentFile(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("a file that came for a job stays", "error", err)
		}
	}
}

// sentWait is how long a file waits for its job: a sender that has ended in between never submits it.
const sentWait = time.Hour

// dropLate removes the files that came before then, and for which no job has come.
func (c *Coordinator) dropLate(then time.Time) {
	c.mu.Lock()
	var late []string
	for id, at := range c.sent {
		if at.Before(then) {
			delete(c.sent, id)
			late = append(late, id)
		}
	}
	c.mu.Unlock()
	c.dropSent(late...)
}

// dropUnwanted removes the files that came for no job that waits, and what jobs have unpacked of them: their senders, or this process, ended in
// between.
func (c *Coordinator) dropUnwanted() error {
	wanted := map[string]bool{}
	for _, j := range c.queue.jobs {
		if j.State == Queued {
			wanted[c.sentFile(j.Spec.Data)], wanted[c.sentFile(j.Spec.Resume)] = true, true
		}
	}
	dir := filepath.Join(c.o.Dir, sentDir)
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range files {
		if path := filepath.Join(dir, f.Name()); !wanted[path] {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}

// claim makes files that were sent those of one job, or says which is not here.
func (c *Coordinator) claim(ids []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if _, ok := c.sent[id]; !ok {
			return fmt.Errorf("the file %q that the job wants is not here: send it again", id)
		}
	}
	for _, id := range ids {
		delete(c.sent, id)
	}
	return nil
}
