package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// bridge is a logger for etcd that writes into log. What etcd deems worth telling is detail here: its warnings come with every start and
// every lease that has run out, and are debug. Where etcd would end the process, it tells fatal instead.
func bridge(log *slog.Logger, fatal *failure) *zap.Logger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var options []zap.Option
	if fatal != nil {
		options = append(options, zap.WithFatalHook(fatal), zap.WithPanicHook(fatal))
	}
	return zap.New(&core{log.Handler(), fatal}, options...)
}

// core implements zapcore.Core over a slog.Handler.
type core struct {
	handler slog.Handler
	state   *failure // nil: a client's
}

func (c *core) level(l zapcore.Level) slog.Level {
	switch {
	case l <= zapcore.WarnLevel || c.state != nil && c.state.closing.Load():
		return slog.LevelDebug // that its listeners are closed under it, it calls an error
	case l == zapcore.ErrorLevel:
		return slog.LevelWarn // it goes on
	}
	return slog.LevelError
}

func (c *core) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), c.level(l))
}

func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{c.handler.WithAttrs(attrs(fields)), c.state}
}

func (c *core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	// Fatal entries end in the hook also where nothing is logged: zap calls it by itself.
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	l := c.level(e.Level)
	if e.Message == "failed to update storage version" {
		l = slog.LevelDebug // at each first start: it tries again, and then there is one
	}
	if !c.handler.Enabled(context.Background(), l) {
		return nil
	}
	r := slog.NewRecord(e.Time, l, "etcd: "+e.Message, 0)
	r.AddAttrs(attrs(fields)...)
	return c.handler.Handle(context.Background(), r)
}

func (c *core) Sync() error { return nil }

func attrs(fields []zapcore.Field) []slog.Attr {
	e := zapcore.NewMapObjectEncoder()
	var out []slog.Attr
	for _, f := range fields {
		f.AddTo(e)
		if v, ok := e.Fields[f.Key]; ok {
			out = append(out, slog.Any(f.Key, v))
		}
	}
	return out
}

// A failure is the end of an embedded etcd against our will. etcd ends the process where it cannot go on; here its goroutine ends, and the
// server counts as failed.
type failure struct {
	lock sync.Mutex
	err  error
	done chan struct{} // closed when err is set

	closing atomic.Bool // it is to end: what breaks now is no failure
}

func newFailure() *failure { return &failure{done: make(chan struct{})} }

// OnWrite implements zapcore.CheckWriteHook. It does not return: etcd does not expect to go on from here.
func (f *failure) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	why := errors.New(e.Message)
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			why = fmt.Errorf("%w: %w", why, err)
		}
	}
	f.set(why)
	runtime.Goexit()
}

func (f *failure) set(err error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.err == nil {
		f.err = err
		close(f.done)
	}
}

func (f *failure) get() error {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.err
}

// caught turns a panic's value into an error.
func caught(r any) error {
	if err, ok := r.(error); ok {
		return err
	}
	return errors.New(strings.TrimSpace(fmt.Sprint(r)))
}
