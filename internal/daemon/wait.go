package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// run calls f, and the end of the connection does not end f. When the client disconnects, or the
// time that it waits is over, the wait ends and the call continues. When that time is over, a call
// that was not sent is not sent by this request any more. A tool that is being called is not
// interrupted, and its answer is recorded. The deadline in the request is another thing: it
// says until when the call may be sent at all.
//
// f runs in the goroutine of the connection: a goroutine of its own would cost each call two
// wake-ups and the growth of a new stack (docs/PERFORMANCE.md). When the wait ends, [wait] takes
// the connection away from that goroutine.
func run[T any](q *request, namespace string, f func(context.Context) (T, error)) (T, error) {
	var none T
	limit, err := q.timeout()
	if err != nil {
		return none, err
	}
	if err := q.d.inFlight.take(namespace, "calls under way in namespace "+strconv.Quote(namespace)); err != nil {
		return none, err
	}
	defer q.d.inFlight.leave(namespace)
	defer endProcess()
	ctx, cancel := q.d.bounded(limit)
	defer cancel()
	ctx = q.underCaller(ctx)
	w := q.wait(limit)
	v, err := f(ctx)
	if !w.end() {
		return none, errNobodyWaits
	}
	return v, err
}

// endProcess ends the process if a call panics, as a panic in a goroutine of its own would.
// net/http would only log the panic, and the process would continue with the locks and leases
// that the call held.
func endProcess() {
	if p := recover(); p != nil {
		text := fmt.Sprintf("%v\n\n%s", p, debug.Stack())
		go panic(text)
		select {}
	}
}

// errStillAtIt is the answer to a caller whose time is over while its call is being sent.
var errStillAtIt = tga.Errorf(tga.IdempotencyKeyInFlight, "your time to wait is over, and the call is still running. Its result will be recorded: ask again with the same key, or read its trace")

const (
	// lastWords is how long a call may take to return its state after its caller's time is over.
	lastWords = 200 * time.Millisecond
	// mostWrite bounds the write of the answer to a caller whose time is over: it may not read.
	mostWrite = time.Second
)

// wait is the wait of a client for its call. If it ends before the call does, the client is
// answered and the connection is closed. So a call without a client takes no place of a connection.
type wait struct {
	q      *request
	mu     sync.Mutex
	over   bool // the call has ended, or nobody waits for it
	unhook func() bool
	timer  *time.Timer // nil: the caller gave no time
}

func (q *request) wait(limit time.Duration) *wait {
	w := &wait{q: q}
	w.mu.Lock() // until both hooks are there
	defer w.mu.Unlock()
	w.unhook = context.AfterFunc(q.r.Context(), func() { w.letGo(nil) })
	if limit > 0 {
		w.timer = time.AfterFunc(min(limit, math.MaxInt64-lastWords)+lastWords, func() { w.letGo(errStillAtIt) })
	}
	return w
}

// end ends the wait and reports whether the client was still waiting. If so, the connection is the
// goroutine's again; else it is closed.
func (w *wait) end() bool {
	w.unhook()
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	waits := !w.over
	w.over = true
	return waits
}

// letGo answers the client with why, and closes the connection. why is nil if the client is gone:
// then there is no answer.
func (w *wait) letGo(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	q := w.q
	conn, _, err := http.NewResponseController(q.w).Hijack()
	if err != nil {
		// The client is answered when the call has ended.
		q.d.log.Warn("a client that waits no longer is not let go", "path", q.r.URL.Path, "error", err)
		return
	}
	w.over = true
	if why != nil {
		last := &lastAnswer{header: q.w.Header().Clone()}
		q.w = last
		q.refuse(why)
		err = conn.SetWriteDeadline(time.Now().Add(mostWrite))
		if err == nil {
			err = last.send(conn)
		}
		if err != nil {
			q.d.log.Debug("answer not delivered", "path", q.r.URL.Path, "error", err)
		}
	} else {
		q.status = statusNobodyWaits
	}
	q.observe()
	_ = conn.Close() // the answer is written, or its error logged
}

// lastAnswer is the answer on a connection that was taken from net/http (Hijack).
type lastAnswer struct {
	header http.Header
	status int
	body   []byte
}

func (a *lastAnswer) Header() http.Header    { return a.header }
func (a *lastAnswer) WriteHeader(status int) { a.status = status }
func (a *lastAnswer) Write(b []byte) (int, error) {
	a.body = append(a.body, b...)
	return len(b), nil
}

func (a *lastAnswer) send(to io.Writer) error {
	a.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	r := &http.Response{
		StatusCode: a.status, ProtoMajor: 1, ProtoMinor: 1, Header: a.header, Close: true,
		ContentLength: int64(len(a.body)), Body: io.NopCloser(bytes.NewReader(a.body)),
	}
	return r.Write(to)
}
