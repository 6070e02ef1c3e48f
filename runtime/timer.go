package runtime

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// timer says what is due on a trace. It is an attachment under the time and the trace,
// an index: what it stands for is in the trace's notes and state, and a timer that
// finds its trace past its purpose does nothing. A trace has one at a time.
type timer struct {
	Kind   string     `json:"kind"`
	Number uint32     `json:"number,omitempty"`
	Wait   tga.Millis `json:"wait_ms,omitempty"` // from when it was set
}

// Kinds of timers.
const (
	timerProbe      = "probe"      // ask again about a call in doubt
	timerRetry      = "retry"      // make a new attempt after a retryable failure
	timerExpiry     = "expiry"     // an approval is too late from now on
	timerCompensate = "compensate" // undo what was half done
)

// timerFailed is how long a timer rests that could not be served: its trace is held by
// somebody, or fails a check.
const timerFailed = 30 * time.Second

// setTimer stages a timer, set at since, in place of the trace's outstanding one.
func (l *loop) setTimer(since, due tga.Millis, t timer) error {
	t.Wait = due - since
	raw, err := json.Marshal(t)
	if err != nil {
		return tga.Errorf(tga.ValidationError, "timer: %w", err).In(l.lease.TraceID)
	}
	l.stopTimer()
	l.attachments = append(l.attachments, chain.Attachment{Kind: chain.AttachTimer, Key: keyspace.TimerKey(due, l.lease.TraceID), Value: raw})
	l.timer = due
	return nil
}

// stopTimer stages the end of the trace's outstanding timer.
func (l *loop) stopTimer() {
	if l.timer != 0 {
		l.attachments = append(l.attachments, chain.Attachment{Kind: chain.AttachTimer, Key: keyspace.TimerKey(l.timer, l.lease.TraceID)})
		l.timer = 0
	}
}

// timerOf is when the outstanding timer of a replayed trace is due, as its notes say.
func timerOf(t *chain.Trace) tga.Millis {
	for i := len(t.Notes) - 1; i >= 0; i-- {
		var b struct{ Next, Due string }
		switch t.Notes[i].Kind {
		case tga.NoteProbe, tga.NoteRetry:
			if json.Unmarshal(t.Notes[i].Body, &b) != nil {
				return 0
			}
		default:
			continue
		}
		due, err := tga.ParseMillis(firstOf(b.Next, b.Due))
		if err != nil {
			return 0 // the last question set none
		}
		return due
	}
	return 0
}

// after is the time of repetition n by b, counted from now.
func (ts *timers) after(b Backoff, n uint32) (tga.Millis, error) {
	var r [8]byte
	if _, err := io.ReadFull(ts.rand, r[:]); err != nil {
		return 0, tga.Errorf(tga.StoreUnavailable, "no randomness: %w", err)
	}
	return tga.MillisOf(ts.clock.Now().Add(b.wait(n, binary.BigEndian.Uint64(r[:])))), nil
}

// timers serves the timers of the store, and holds what this process remembers of them.
type timers struct {
	store Store
	clock times
	rand  io.Reader
	serve func(ctx context.Context, key []byte, trace tga.ID, t timer) error // does what a timer is for

	// mu is held for a look into the maps and never while the store is asked or a timer is
	// served: timers are served timersAtOnce at a time, and each may lay itself to rest.
	mu    sync.Mutex
	rests map[string]tga.Millis // key of a timer that failed, and until when it rests
	early map[string]tga.Millis // key of a timer that is due earlier than its key says
	jumps uint64                // of the clock, when early was made
	known bool                  // early was made

	woken chan struct{} // has a value when a timer was set
}

func newTimers(store Store, clock times, rand io.Reader) *timers {
	return &timers{
		store: store, clock: clock, rand: rand,
		rests: map[string]tga.Millis{}, early: map[string]tga.Millis{}, woken: make(chan struct{}, 1),
	}
}

func (ts *timers) wake() {
	select {
	case ts.woken <- struct{}{}:
	default:
	}
}

// RunTimers serves the store's timers until ctx ends: it asks again about calls in
// doubt, makes due attempts, lets approvals expire. The times are in the store, so
// they survive a restart. Where several processes share a store each runs this: of those that
// find the same timer, the one that gets the trace's lease serves it. What is under way when
// ctx ends goes on under life, so that a drain puts nothing in doubt, and is waited for.
// It returns ctx's error, or a store's that can no longer be read.
func (rt *Runtime) RunTimers(ctx, life context.Context) error {
	return rt.timers.run(ctx, life)
}

func (ts *timers) run(ctx, life context.Context) error {
	for {
		next, err := ts.serveDue(ctx, life)
		if err != nil {
			return err
		}
		wait := time.Minute // a clock that is set shows within that
		if next != 0 {
			wait = min(wait, max(next.Time().Sub(ts.clock.Now()), 0))
		}
		pause := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-ts.woken:
			pause.Stop()
		case <-pause.C:
		}
	}
}

// timersAtOnce is how many due timers are served at the same time.
const timersAtOnce = 8

// due is a timer whose time has come.
type due struct {
	key   []byte
	trace tga.ID
	timer timer
}

// FireTimers serves what is due now, and what falls due by that, and returns when the
// next timer is; 0 is none.
func (rt *Runtime) FireTimers(ctx context.Context) (next tga.Millis, err error) {
	return rt.timers.serveDue(ctx, ctx)
}

func (ts *timers) serveDue(ctx, life context.Context) (next tga.Millis, err error) {
	for {
		list, next, err := ts.listDue(ctx)
		if err != nil || len(list) == 0 {
			return next, err
		}
		slots, failed := make(chan struct{}, timersAtOnce), make(chan error, len(list))
		for _, d := range list {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				wait(slots)
				return 0, ctx.Err()
			}
			go func() {
				err := ts.fire(life, d.key, d.trace, d.timer)
				if err != nil {
					ts.lay(d.key, tga.MillisOf(ts.clock.Now().Add(timerFailed)))
				}
				if storeAway(err) {
					failed <- err
				}
				<-slots
			}()
		}
		wait(slots)
		select {
		case err := <-failed:
			return 0, err
		default:
		}
	}
}

// wait takes all slots: everybody who had one is done.
func wait(slots chan struct{}) {
	for range cap(slots) {
		slots <- struct{}{}
	}
}

// listDue lists the timers that are due and do not rest, and the time of the next.
func (ts *timers) listDue(ctx context.Context) (list []due, next tga.Millis, err error) {
	now := ts.clock.now()
	if err := ts.anchor(ctx); err != nil {
		return nil, 0, err
	}
	if list, next, err = ts.listEarly(ctx, now); err != nil {
		return nil, 0, err
	}
	for a, err := range ts.store.Attachments(ctx, chain.AttachTimer, nil) {
		if err != nil {
			return nil, 0, err
		}
		set, trace, err := keyspace.ParseTimer(a.Key)
		if err != nil {
			return nil, 0, err
		}
		if at := max(set, ts.rest(a.Key, now)); at > now {
			if next == 0 || at < next {
				next = at
			}
			if set > now {
				break // they come in the order of their times: none after this is due
			}
			continue
		}
		d := due{key: a.Key, trace: trace}
		if err := json.Unmarshal(a.Value, &d.timer); err != nil {
			return nil, 0, tga.Errorf(tga.StateChecksumMismatch, "timer %x: %w", a.Key, err)
		}
		list = append(list, d)
	}
	return list, next, nil
}

// anchor finds, when the process begins and when the clock has jumped, the timers that
// are due before their stored time: none waits longer from now on than it was to wait when it
// was set. What expires is no later than that from when it was set.
func (ts *timers) anchor(ctx context.Context) error {
	jumps, _ := ts.clock.Jumps()
	ts.mu.Lock()
	known := ts.known && ts.jumps == jumps
	ts.mu.Unlock()
	if known {
		return nil
	}
	early := map[string]tga.Millis{}
	for a, err := range ts.store.Attachments(ctx, chain.AttachTimer, nil) {
		if err != nil {
			return err
		}
		var b timer
		if err := json.Unmarshal(a.Value, &b); err != nil {
			return tga.Errorf(tga.StateChecksumMismatch, "timer %x: %w", a.Key, err)
		}
		due, _, err := keyspace.ParseTimer(a.Key)
		if err != nil {
			return err
		}
		wait := time.Duration(b.Wait) * time.Millisecond
		left := ts.clock.Due(due.Time(), wait)
		if b.Kind == timerExpiry {
			left = max(wait-ts.clock.Longest((due-b.Wait).Time()), 0)
		}
		// Up to a whole millisecond: before it the timer would find nothing to do.
		if at := tga.MillisOf(ts.clock.Now().Add(left + time.Millisecond - 1)); at < due {
			early[string(a.Key)] = at
		}
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.early, ts.rests, ts.jumps, ts.known = early, map[string]tga.Millis{}, jumps, true
	return nil
}

// listEarly lists those of them that are due, and the time of the next.
func (ts *timers) listEarly(ctx context.Context, now tga.Millis) (list []due, next tga.Millis, err error) {
	ts.mu.Lock()
	early := maps.Clone(ts.early)
	ts.mu.Unlock()
	for key, at := range early {
		if at = max(at, ts.rest([]byte(key), now)); at > now {
			if next == 0 || at < next {
				next = at
			}
			continue
		}
		raw, err := ts.store.Attachment(ctx, chain.AttachTimer, []byte(key))
		if err != nil {
			return nil, 0, err
		}
		set, trace, err := keyspace.ParseTimer([]byte(key))
		if err != nil {
			return nil, 0, err
		}
		if raw == nil || set <= now {
			ts.mu.Lock()
			delete(ts.early, key) // it is over, or due by its key
			ts.mu.Unlock()
			continue
		}
		d := due{key: []byte(key), trace: trace}
		if err := json.Unmarshal(raw, &d.timer); err != nil {
			return nil, 0, tga.Errorf(tga.StateChecksumMismatch, "timer %x: %w", key, err)
		}
		list = append(list, d)
	}
	return list, next, nil
}

// rest is until when a timer rests; a rest that is over is forgotten.
func (ts *timers) rest(key []byte, now tga.Millis) tga.Millis {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	until := ts.rests[string(key)]
	if until <= now {
		delete(ts.rests, string(key))
	}
	return until
}

func (ts *timers) lay(key []byte, until tga.Millis) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.rests[string(key)] = until
}

// fire serves one timer. An error means that it is to be tried again later; what the
// trace came to is no error of the timer. What served it has ended it in the same batch,
// where it wrote anything; a timer that is left stands for nothing and is ended here.
func (ts *timers) fire(ctx context.Context, key []byte, trace tga.ID, t timer) error {
	if err := ts.serve(ctx, key, trace, t); err != nil {
		return err
	}
	left, err := ts.store.Attachment(ctx, chain.AttachTimer, key)
	if err != nil || left == nil {
		return err
	}
	lease, err := ts.store.Acquire(context.WithoutCancel(ctx), trace)
	if err != nil {
		return err
	}
	defer ts.store.Release(lease)
	_, err = ts.store.Append(ctx, lease, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachTimer, Key: key}}})
	return err
}

// serveTimer does what a timer is for.
func (rt *Runtime) serveTimer(ctx context.Context, key []byte, trace tga.ID, t timer) (err error) {
	res := Result{TraceID: trace}
	span := rt.spans.begin(&ctx, "tgad.timer", trace, "", "")
	defer span.end(&res, &err)
	switch t.Kind {
	case timerRetry:
		return rt.settledTimer(rt.retries.retry(ctx, key, trace, t.Number))
	case timerCompensate:
		_, err := rt.compensations.undo(ctx, trace, whoRuntime, key)
		return rt.settledTimer(err)
	}
	l, err := rt.traces.resume(context.WithoutCancel(ctx), trace) // no deadline: who holds it is at work
	if err != nil {
		return err
	}
	defer rt.store.Release(l.lease)
	// Another process may have served it since it was listed: a question would be asked again.
	if left, err := rt.store.Attachment(ctx, chain.AttachTimer, key); err != nil || left == nil {
		return err
	}
	if t.Kind == timerProbe && l.state == tga.Executing || t.Kind == timerExpiry && l.state == tga.Pending {
		l.confirms = true
		err := rt.drive(ctx, l)
		if t.Kind == timerExpiry && errors.Is(err, tga.EscalationRequired) {
			return err // it came before the approval is over, and must come again
		}
		return rt.settledTimer(err)
	}
	return nil
}

// settledTimer keeps the errors that are about the store or the lease. All others say
// what became of the call.
func (rt *Runtime) settledTimer(err error) error {
	rt.goOn(&err)
	if errors.Is(err, tga.StoreUnavailable) || errors.Is(err, tga.StateLockAcquireFailed) || errors.Is(err, tga.StateRecoveryFailed) {
		return err
	}
	return nil
}
