package s3

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// watch ends a request in which nothing moves: a connection that hangs would else hold a backup for
// ever.
type watch struct {
	timer  *time.Timer
	after  time.Duration
	cancel context.CancelFunc
	hung   atomic.Bool // it ended the request
}

func (o *Objects) watch(ctx context.Context) (*watch, context.Context) {
	w := &watch{after: o.idle}
	ctx, w.cancel = context.WithCancel(ctx)
	w.timer = time.AfterFunc(w.after, func() {
		w.hung.Store(true)
		w.cancel()
	})
	return w, ctx
}

// moved says that a byte came or went.
func (w *watch) moved() { w.timer.Reset(w.after) }

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel()
}

// told is the error of the request, which says so where this ended it.
func (w *watch) told(err error) error {
	if err != nil && w.hung.Load() {
		return fmt.Errorf("nothing moved for %s", w.after)
	}
	return err
}

// moving is a body on its way to the service.
type moving struct {
	io.ReadSeeker
	w *watch
}

func (m *moving) Read(b []byte) (int, error) {
	m.w.moved()
	return m.ReadSeeker.Read(b)
}

// watched is a body on its way from the service.
type watched struct {
	io.ReadCloser
	w *watch
}

func (b *watched) Read(p []byte) (int, error) {
	b.w.moved()
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.w.told(err)
	}
	return n, err
}

func (b *watched) Close() error {
	b.w.stop()
	return b.ReadCloser.Close()
}
