package s3

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// watch cancels a request in which no byte moves for some time. Otherwise a connection that hangs
// would block a backup for ever.
type watch struct {
	timer  *time.Timer
	after  time.Duration
	cancel context.CancelFunc
	hung   atomic.Bool // watch has canceled the request
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

// moved notes that a byte was sent or received.
func (w *watch) moved() { w.timer.Reset(w.after) }

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel()
}

// told returns the error of the request. If watch canceled it, the error says so.
func (w *watch) told(err error) error {
	if err != nil && w.hung.Load() {
		return fmt.Errorf("nothing moved for %s", w.after)
	}
	return err
}

// moving is the body of a request.
type moving struct {
	io.ReadSeeker
	w *watch
}

func (m *moving) Read(b []byte) (int, error) {
	m.w.moved()
	return m.ReadSeeker.Read(b)
}

// watched is the body of an answer.
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
