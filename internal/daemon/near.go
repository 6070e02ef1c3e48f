package daemon

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// Near reaches a daemon of the same process without a socket. It gives a request to the same code
// as a connection does, with the rights and limits, and with the same answers, as on a connection
// that this process has made. It saves two trips through the kernel and the wake-ups after them,
// which cost a short request more than its work does (docs/PERFORMANCE.md).
//
// The zero value is ready for use. It answers while a daemon serves that has it in its options.
type Near struct {
	mu    sync.Mutex
	d     *Daemon // nil: no daemon serves
	hands *hands
	under int           // exchanges under way
	idle  chan struct{} // closed once there are none; nil if nobody waits for that
}

// Exchange answers a request, for client.Options. ok is false if no daemon serves in this process:
// then nothing was done. The end of ctx ends the wait, as the end of a connection does.
func (n *Near) Exchange(ctx context.Context, text []byte) (resp *http.Response, ok bool, err error) {
	d, hands := n.enter()
	if d == nil {
		return nil, false, nil
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
	if err != nil {
		n.leave()
		return nil, true, tga.Errorf(tga.ValidationError, "the request is not HTTP: %w", err)
	}
	ours := d.ownConnection()
	life, end := context.WithCancel(context.WithValue(context.Background(), connKey{}, &ours))
	w := &nearAnswer{header: http.Header{}, status: http.StatusOK, done: make(chan struct{})}
	// Use another goroutine: a call continues after its caller stops waiting.
	hands.do(func() {
		defer n.leave()
		defer end()
		defer w.finish()
		defer w.broken(d)
		d.ServeHTTP(w, r.WithContext(life))
	})
	select {
	case <-w.done:
		return w.response(r)
	case <-ctx.Done():
		end()
		return nil, true, ctx.Err()
	}
}

// ownConnection is the connection that a request of this process counts as made on.
func (d *Daemon) ownConnection() connection {
	p := peer{uid: d.uid, gid: uint32(os.Getegid())}
	p.role = d.roleOf(p.uid, p.gid)
	return connection{peer: p, refusal: p.barred()}
}

// Reload has the daemon read its configuration again. ok is false if no daemon serves in this process.
func (n *Near) Reload() (ok bool, err error) {
	d, _ := n.enter()
	if d == nil {
		return false, nil
	}
	defer n.leave()
	_, err = d.reload()
	return true, err
}

func (n *Near) enter() (*Daemon, *hands) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.d != nil {
		n.under++
	}
	return n.d, n.hands
}

func (n *Near) leave() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.under--; n.under == 0 && n.idle != nil {
		close(n.idle)
		n.idle = nil
	}
}

// serve makes d answer. After stop it takes no more requests; stop waits for those under way until
// its ctx ends.
func (n *Near) serve(d *Daemon) (stop func(context.Context)) {
	if n == nil {
		return func(context.Context) {}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &hands{jobs: make(chan func()), over: make(chan struct{})}
	n.d, n.hands = d, h
	return func(ctx context.Context) {
		n.mu.Lock()
		if n.hands != h {
			n.mu.Unlock()
			return // it was stopped before
		}
		n.d, n.hands = nil, nil
		close(h.over)
		var idle chan struct{}
		if n.under > 0 {
			idle = make(chan struct{})
			n.idle = idle
		}
		n.mu.Unlock()
		if idle == nil {
			return
		}
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
}

// hands are goroutines that do one job after another. A new goroutine for each request would have
// to grow its stack again, which costs a short request a tenth of its time.
type hands struct {
	jobs chan func()
	over chan struct{} // closed when there will be no more
	idle atomic.Int32
}

// mostIdle is how many goroutines wait for a next job at most.
const mostIdle = 16

func (h *hands) do(job func()) {
	select {
	case h.jobs <- job:
	default:
		go h.work(job)
	}
}

func (h *hands) work(job func()) {
	for {
		job()
		if h.idle.Add(1) > mostIdle {
			h.idle.Add(-1)
			return
		}
		select {
		case job = <-h.jobs:
			h.idle.Add(-1)
		case <-h.over:
			return
		}
	}
}

// nearAnswer records a handler's answer. If the handler takes over the connection (Hijack), the
// answer is what is written to that connection.
type nearAnswer struct {
	header http.Header
	status int
	wrote  bool
	body   bytes.Buffer

	once sync.Once
	done chan struct{} // closed when the answer is whole
	last *lastConn     // the connection that Hijack returned; nil = none
	fell bool          // the handler panicked
}

func (w *nearAnswer) Header() http.Header { return w.header }

func (w *nearAnswer) WriteHeader(status int) {
	if !w.wrote {
		w.status, w.wrote = status, true
	}
}

func (w *nearAnswer) Write(b []byte) (int, error) {
	w.wrote = true
	return w.body.Write(b)
}

// These have nothing to do: the whole body is in memory, and the answer is written to memory.
func (w *nearAnswer) SetReadDeadline(time.Time) error  { return nil }
func (w *nearAnswer) SetWriteDeadline(time.Time) error { return nil }
func (w *nearAnswer) EnableFullDuplex() error          { return nil }
func (w *nearAnswer) FlushError() error                { return nil }

// Hijack gives the handler a connection. What is written to it until Close is the answer.
func (w *nearAnswer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.last = &lastConn{end: w.finish}
	return w.last, bufio.NewReadWriter(bufio.NewReader(w.last), bufio.NewWriter(w.last)), nil
}

// finish says that the answer is whole.
func (w *nearAnswer) finish() { w.once.Do(func() { close(w.done) }) }

// broken handles a panic of the handler as net/http does: it logs the panic, and the client gets no
// answer. A panic within a call does not get here: it ends the process ([endProcess]).
func (w *nearAnswer) broken(d *Daemon) {
	if p := recover(); p != nil {
		w.fell = true
		d.log.Error("a request panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

func (w *nearAnswer) response(r *http.Request) (*http.Response, bool, error) {
	switch {
	case w.last != nil: // look at this first: the handler may still be running and change the rest
		resp, err := http.ReadResponse(bufio.NewReader(&w.last.said), r)
		return resp, true, err
	case w.fell:
		return nil, true, io.ErrUnexpectedEOF
	}
	return &http.Response{
		StatusCode: w.status, Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), Header: w.header,
		ContentLength: int64(w.body.Len()), Body: io.NopCloser(&w.body), Request: r,
	}, true, nil
}

// lastConn is a connection that can only be written to.
type lastConn struct {
	net.Conn // nil: no other method is called
	said     bytes.Buffer
	end      func()
}

func (c *lastConn) Read([]byte) (int, error)         { return 0, io.EOF }
func (c *lastConn) Write(b []byte) (int, error)      { return c.said.Write(b) }
func (c *lastConn) SetWriteDeadline(time.Time) error { return nil }
func (c *lastConn) Close() error                     { c.end(); return nil }
