package processes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/trivium-ml/trivium/blob"
)

// nowhere is the store of a driver that has no place for checkpoints: a write is refused, as by a disk that is full.
type nowhere struct{}

var errNowhere = errors.New("processes: there is no place for checkpoints where the job was started")

func (nowhere) Put(context.Context, string, io.Reader) error         { return errNowhere }
func (nowhere) PutIfAbsent(context.Context, string, io.Reader) error { return errNowhere }
func (nowhere) List(context.Context, string) ([]blob.Object, error)  { return nil, nil }
func (nowhere) Delete(context.Context, string) error                 { return nil }

func (nowhere) Get(_ context.Context, key string, _, _ int64) (io.ReadCloser, error) {
	return nil, fmt.Errorf("processes: %s: %w", key, fs.ErrNotExist)
}
