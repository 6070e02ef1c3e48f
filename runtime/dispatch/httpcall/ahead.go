package httpcall

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// DefaultAhead is how many unused connections a [Server] keeps at most.
const DefaultAhead = 8

const (
	// maxIdle is how long an unused connection is kept.
	maxIdle = 2 * time.Second
	// firstTrust is the age up to which an unused connection is used, until the server
	// has shown how long it keeps connections. Servers wait seconds for a first request.
	firstTrust = 250 * time.Millisecond
	// leastTrust is the least trust with which connecting ahead is worthwhile. If the trust in
	// a server is less, no connection is made ahead for restFor.
	leastTrust = 20 * time.Millisecond
	restFor    = time.Minute
	// dialLimit bounds a dial that no call waits for.
	dialLimit = 10 * time.Second
)

// ahead connects to the server before a call needs the connection, so that a call does
// not wait for the handshakes of TCP and TLS. Each connection is used for one request, like
// a connection that is dialed for its call. A server may close it while it waits, and a
// request that is written at that moment would be in doubt. Therefore
//
//   - a goroutine reads from each connection that waits, and takes it out of the pool when
//     the server closes it or sends anything;
//   - the socket is checked before the attempt is made durable, when the connection is
//     chosen, and right before the first byte of the request;
//   - a connection is used only up to half the age at which the server was last seen to
//     keep one open. A server that closes after 1 s gets no request near that moment.
//
// If a connection still dies, the send is classified as usual: by whether a byte left.
type ahead struct {
	dial dialFunc
	most int // connections without a request, those being dialed included

	ctx  context.Context // of dials that no call waits for
	stop context.CancelFunc
	all  sync.WaitGroup

	mu            sync.Mutex
	network, addr string        // of the server; "" before the first call
	spares        []*spare      // oldest first
	trust         time.Duration // the age up to which a spare is used
	rest          time.Time     // no spare is made or used before this time
	taken         time.Time     // when a call last took a connection
	busy          bool          // that call came soon after the call before it
	calls         int           // calls under way
	peak          int           // the most calls under way at once since peaked
	peaked        time.Time
}

// spare is a connection that is being made, or waits for a request.
type spare struct {
	ready chan struct{} // closed when conn or err is set
	conn  *wire
	err   error
	since time.Time  // when it was ready
	heard chan error // the error of the Read that waits on it; nil if it read bytes
	out   bool       // guarded by ahead.mu: it is no longer in the pool
}

func newAhead(dial dialFunc, most int) *ahead {
	a := &ahead{dial: dial, most: most, trust: firstTrust}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}

// prepare starts to make a connection, if none waits, for a call that is about to be made
// durable.
func (a *ahead) prepare() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	if len(a.spares) == 0 {
		a.begin()
	}
}

// enter notes that a call begins, and leave that it has ended. While calls follow each
// other, as many connections wait as calls were recently under way at once.
func (a *ahead) enter() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	if now := time.Now(); a.calls >= a.peak || now.Sub(a.peaked) > maxIdle {
		a.peak, a.peaked = a.calls, now
	}
}

func (a *ahead) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls--
	a.fill()
}

func (a *ahead) fill() {
	a.sweep()
	for n := len(a.spares); a.busy && n < a.peak; n++ {
		a.begin()
	}
}

// take returns a connection that had no request, and then lets others be made. It is a
// [dialFunc].
//
// The others are made after it: a server that serves its connections one by one must not
// first get a connection without a request.
func (a *ahead) take(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := a.connect(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fill()
	return conn, nil
}

func (a *ahead) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	if s := a.claim(ctx, network, addr); s != nil {
		select {
		case <-s.ready:
			if s.err == nil {
				return s.conn, nil
			}
			// That dial failed, but it was not made for this call. Dial for this call now.
		case <-ctx.Done():
			a.all.Go(func() {
				<-s.ready
				if s.err == nil {
					_ = s.conn.Close() // nothing was written to it
				}
			})
			return nil, context.Cause(ctx)
		}
	}
	return a.dial(ctx, network, addr)
}

// claim takes the oldest usable spare out of the pool, nil if there is none.
func (a *ahead) claim(ctx context.Context, network, addr string) *spare {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.network, a.addr = network, addr
	a.sweep()
	var chosen *spare
	for chosen == nil && len(a.spares) > 0 && ctx.Value(anew{}) == nil {
		s := a.spares[0]
		a.remove(s)
		if !s.waits() || a.wake(s) {
			chosen = s
		}
	}
	now := time.Now()
	a.busy = now.Sub(a.taken) < maxIdle
	a.taken = now
	return chosen
}

// wake ends the Read of a spare that waits, and reports whether the spare is usable.
func (a *ahead) wake(s *spare) bool {
	err := s.conn.SetReadDeadline(time.Unix(1, 0))
	if err != nil {
		_ = s.conn.Close() // nothing was written to it
	}
	heard := <-s.heard
	if err == nil && errors.Is(heard, os.ErrDeadlineExceeded) && !s.conn.arrived() && s.conn.SetReadDeadline(time.Time{}) == nil {
		return true
	}
	a.distrust(time.Since(s.since))
	_ = s.conn.Close() // likewise
	return false
}

// sweep closes the connections that must not be used: those that the server closed or sent
// something on, and those older than the trust in the server. It is called before a new
// connection is dialed: a server that serves its connections one by one must not wait for a
// request on a connection that gets none.
func (a *ahead) sweep() {
	now := time.Now()
	for _, s := range slices.Clone(a.spares) {
		if !s.waits() {
			continue
		}
		age := now.Sub(s.since)
		switch {
		case len(s.heard) > 0:
			continue // its goroutine removes it
		case s.conn.arrived():
			a.distrust(age)
		case age > a.trust || now.Before(a.rest):
			a.trust = max(a.trust, age/2)
		default:
			continue
		}
		a.remove(s)
		_ = s.conn.Close() // nothing was written to it
	}
}

// distrust lowers the trust; age is that of a connection which the server closed.
func (a *ahead) distrust(age time.Duration) {
	a.trust = age / 2
	if a.trust < leastTrust {
		a.trust, a.rest = firstTrust, time.Now().Add(restFor)
	}
}

// begin dials, unless there are enough.
func (a *ahead) begin() {
	if a.addr == "" || len(a.spares) >= a.most || a.ctx.Err() != nil || time.Now().Before(a.rest) {
		return
	}
	s := &spare{ready: make(chan struct{}), heard: make(chan error, 1)}
	a.spares = append(a.spares, s)
	network, addr := a.network, a.addr
	a.all.Go(func() {
		ctx, cancel := context.WithTimeout(a.ctx, dialLimit)
		defer cancel()
		conn, err := a.dial(ctx, network, addr)
		if a.settle(s, conn, err) {
			a.listen(s)
		}
	})
}

// settle records how the dial of s ended. It reports whether s waits in the pool.
func (a *ahead) settle(s *spare, conn net.Conn, err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer close(s.ready)
	if err == nil && a.ctx.Err() != nil {
		err = errors.Join(a.ctx.Err(), conn.Close())
	}
	if err == nil {
		s.conn, s.since = conn.(*wire), time.Now()
		if s.out {
			return false // a call waits for it
		}
		s.conn.waited = true
		if err = conn.SetReadDeadline(s.since.Add(maxIdle)); err != nil {
			err = errors.Join(err, conn.Close())
		}
	}
	if s.err = err; err != nil {
		a.remove(s)
	}
	return err == nil
}

// listen reads while s waits. The Read ends when s is taken, when its time is over, when
// the server closes the connection, or when the server sends something without a request.
func (a *ahead) listen(s *spare) {
	var b [1]byte
	_, err := s.conn.Conn.Read(b[:])
	s.heard <- err
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.out {
		return
	}
	age := time.Since(s.since)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		a.trust = max(a.trust, age/2)
	} else {
		a.distrust(age)
	}
	a.remove(s)
	_ = s.conn.Close() // nothing was written to it
}

// waits reports whether s is connected.
func (s *spare) waits() bool {
	select {
	case <-s.ready:
		return s.err == nil
	default:
		return false
	}
}

func (a *ahead) remove(s *spare) {
	s.out = true
	a.spares = slices.DeleteFunc(a.spares, func(o *spare) bool { return o == s })
}

// close closes all waiting connections, and returns when their goroutines have ended.
func (a *ahead) close() {
	a.stop()
	a.mu.Lock()
	for _, s := range slices.Clone(a.spares) {
		a.remove(s)
		if s.waits() {
			_ = s.conn.Close() // nothing was written to it
		}
	}
	a.mu.Unlock()
	a.all.Wait()
}

// anew is the key of a context whose dispatch wants a connection that did not wait.
type anew struct{}
