package killtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/killtest/adapter"
	"github.com/tgad/tgad/schemas/tga"
)

// Point is the moment at which a process is killed.
type Point string

// The points of a call.
const (
	None     Point = "none"     // the process lives; the other points measure their times by such calls
	Arrived  Point = "arrived"  // the world has the request and has not charged; it drops the request
	Done     Point = "done"     // the world has charged and has not answered
	Answered Point = "answered" // the world has answered, and the engine has not told the client
	Random   Point = "random"   // anywhere in the time that a call takes
	Restart  Point = "restart"  // as Done, and once more while the engine starts again
)

// Points returns all of them, in the order in which a run takes them.
func Points() []Point { return []Point{None, Arrived, Done, Answered, Random, Restart} }

// Limits of [Options].
const (
	MaxCalls    = 100_000
	MinPatience = time.Second
)

// repeats is how long a client repeats a call that is still running. Some engines look only after half a minute
// for calls that a dead process has left. The client then continues with its other calls, and asks for the
// outcome of this one after the last of them.
const repeats = 10 * time.Second

// Options say what a run does.
type Options struct {
	Command  []string // the adapter's program and its arguments
	Dedupes  bool     // the world makes one charge of all requests with one Idempotency-Key
	Calls    int      // 1 to MaxCalls
	Seed     uint64
	Dir      string        // an empty directory, for the engine
	Patience time.Duration // for one answer, and for all calls that run after the last one; at least MinPatience
}

// call is one call of a run.
type call struct {
	key   string
	point Point
	kills int
	got   adapter.Outcome // what the client was told; Running if it got no answer
	last  adapter.Outcome // the status after the last start
}

// run is a run under way.
type run struct {
	o       Options
	world   *world
	rand    *rand.Rand
	process *process
	engine  string
	started time.Duration // how long the last start took
	called  time.Duration // and the last call in which nobody was killed
	calls   []*call
	kills   int // those that belong to no call
}

// Run makes the calls and returns what became of them. Faults of the engine are in the result. An error means
// that the run could not be finished.
func Run(ctx context.Context, o Options) (res *Result, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	began := time.Now()
	r := &run{o: o, rand: rand.New(rand.NewPCG(o.Seed, 0))}
	if r.world, err = newWorld(o.Dedupes); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.world.close()) }()
	_, stop, err := r.serve(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	defer func() {
		if r.process != nil {
			err = errors.Join(err, r.process.bury())
		}
	}()
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	for i := range o.Calls {
		c := &call{key: fmt.Sprintf("order-%x-%d", o.Seed, i), point: Points()[i%len(Points())], got: adapter.Running}
		r.calls = append(r.calls, c)
		if err := r.make(ctx, c, i+1); err != nil {
			return nil, fmt.Errorf("call %s, kill at point %s: %w", c.key, c.point, err)
		}
	}
	if err := r.settle(ctx); err != nil {
		return nil, fmt.Errorf("after the last call: %w", err)
	}
	return r.result(time.Since(began)), nil
}

func (o Options) check() error {
	switch {
	case len(o.Command) == 0:
		return tga.Errorf(tga.ValidationError, "no command of an adapter")
	case o.Calls < 1 || o.Calls > MaxCalls:
		return tga.Errorf(tga.ValidationError, "%d calls: want 1 to %d", o.Calls, MaxCalls)
	case o.Patience < MinPatience:
		return tga.Errorf(tga.ValidationError, "patience of %v: want at least %v", o.Patience, MinPatience)
	case !filepath.IsAbs(o.Dir):
		return tga.Errorf(tga.ValidationError, "directory %q: want an absolute path", o.Dir)
	}
	left, err := os.ReadDir(o.Dir)
	if err == nil && len(left) > 0 {
		return tga.Errorf(tga.ValidationError, "directory %q is not empty: it has %q", o.Dir, left[0].Name())
	}
	return err
}

// serve starts a process of the adapter for what the engine keeps outside of the one that is killed. It
// returns the process, 0 where there is nothing to keep.
func (r *run) serve(ctx context.Context) (pid int, stop func() error, err error) {
	p, err := begin(r.o.Command, r.o.Dir)
	if err != nil {
		return 0, nil, err
	}
	a, err := p.ask(ctx, adapter.Request{Op: adapter.OpServe, Version: adapter.Protocol, Dir: r.o.Dir}, r.o.Patience)
	if err == nil && a.Servers {
		return p.cmd.Process.Pid, func() error { return p.finish(r.o.Patience) }, nil
	}
	if err == nil {
		return 0, func() error { return nil }, p.finish(r.o.Patience)
	}
	return 0, nil, p.explain(err)
}

// explain buries a process of which an answer was wanted, and adds to errDied how it ended.
func (p *process) explain(err error) error {
	died := errors.Is(err, errDied)
	err = errors.Join(err, p.bury())
	if died {
		err = tga.Errorf(tga.ToolError, "%w, by itself: %v%s", err, p.ended, p.said)
	}
	return err
}

// start starts the engine, and waits until it takes calls.
func (r *run) start(ctx context.Context) (err error) {
	if r.process, err = begin(r.o.Command, r.o.Dir); err != nil {
		return err
	}
	began := time.Now()
	a, err := r.process.ask(ctx, r.starting(), r.o.Patience)
	if err != nil {
		return r.process.explain(err)
	}
	r.started = time.Since(began)
	r.engine = a.Engine
	return nil
}

func (r *run) starting() adapter.Request {
	return adapter.Request{Op: adapter.OpStart, Version: adapter.Protocol, Dir: r.o.Dir, World: &adapter.World{URL: r.world.url, Dedupes: r.o.Dedupes}}
}

// make makes one call, kills the engine at its point, and repeats the call until the client has an answer.
func (r *run) make(ctx context.Context, c *call, amount int) error {
	request := adapter.Request{Op: adapter.OpCall, Key: c.key, Amount: amount}
	s := r.arm(c)
	began := time.Now()
	for ended := false; !ended; {
		a, err := r.process.ask(ctx, request, r.o.Patience)
		if err == nil {
			c.got = a.Outcome
		}
		if ended = c.got.Final() || time.Since(began) > repeats; ended {
			s.callOff()
		}
		killed, killErr := s.happened()
		switch {
		case killErr != nil || err != nil && !(killed && errors.Is(err, errDied)):
			return errors.Join(killErr, r.process.explain(err))
		case killed:
			c.kills++
			if err := r.revive(ctx, c); err != nil {
				return err
			}
		case ended && c.kills == 0:
			r.called = time.Since(began)
		case !ended:
			pause(ctx)
		}
	}
	r.world.arm(trap{})
	return ctx.Err()
}

// arm prepares the kill for a call.
func (r *run) arm(c *call) *shot {
	s, point := &shot{process: r.process}, c.point
	switch point {
	case None:
		return s
	case Random:
		time.AfterFunc(r.upTo(r.called), s.fire)
		return s
	case Restart:
		point = Done
	}
	r.world.arm(trap{point: point, key: c.key, kill: s.fire})
	return s
}

// shot is one planned kill. It happens at most once, and can be called off.
type shot struct {
	process *process

	mu         sync.Mutex
	fired, off bool
	err        error
}

func (s *shot) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.off {
		s.fired, s.off, s.err = true, true, s.process.kill()
	}
}

// callOff cancels the kill if it has not happened yet.
func (s *shot) callOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = true
}

// happened reports whether the kill has happened since the last call of happened.
func (s *shot) happened() (fired bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fired, s.fired = s.fired, false
	return fired, s.err
}

// upTo returns a random time of at most d.
func (r *run) upTo(d time.Duration) time.Duration { return time.Duration(r.rand.Int64N(int64(d) + 1)) }

// revive starts the engine again after a kill. For the point Restart it first starts it and kills it during
// that start.
func (r *run) revive(ctx context.Context, c *call) (err error) {
	if err := r.process.bury(); err != nil {
		return err
	}
	if c.point != Restart {
		return r.start(ctx)
	}
	if r.process, err = begin(r.o.Command, r.o.Dir); err != nil {
		return err
	}
	p, fired := r.process, make(chan error, 1)
	time.AfterFunc(r.upTo(r.started), func() { fired <- p.kill() })
	_, err = p.ask(ctx, r.starting(), r.o.Patience)
	if killErr := <-fired; killErr != nil || err != nil && !errors.Is(err, errDied) {
		return errors.Join(killErr, p.explain(err))
	}
	c.kills++
	if err := p.bury(); err != nil {
		return err
	}
	return r.start(ctx)
}

// settle kills the engine once more and asks for the status of every call. It waits for calls that still run.
func (r *run) settle(ctx context.Context) error {
	if err := r.process.bury(); err != nil {
		return err
	}
	r.kills++
	if err := r.start(ctx); err != nil {
		return err
	}
	until := time.Now().Add(r.o.Patience)
	for _, c := range r.calls {
		for {
			a, err := r.process.ask(ctx, adapter.Request{Op: adapter.OpStatus, Key: c.key}, r.o.Patience)
			if err != nil {
				return fmt.Errorf("status of %s: %w", c.key, r.process.explain(err))
			}
			if c.last = a.Outcome; c.last != adapter.Running || time.Now().After(until) {
				break
			}
			pause(ctx)
		}
	}
	// End the engine before the charges are counted, so that it cannot make another one.
	return errors.Join(r.process.bury(), ctx.Err())
}

// pause waits between two questions about a call that still runs.
func pause(ctx context.Context) {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
}
