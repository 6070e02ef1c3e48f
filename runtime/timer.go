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

// timer says what is due on a trace. It is an attachment whose key is the time and the trace.
// It is only an index: the trace's notes and state say what it is for, and a timer whose purpose
// is over does nothing. A trace has one timer at a time.
type timer struct {
	Kind   string     `json:"kind"`
	Number uint32     `json:"number,omitempty"`
	Wait   tga.Millis `json:"wait_ms,omitempty"` // from when it was set
}

// Kinds of timers.
const (
	timerProbe      = "probe"      // ask again about a call in doubt
	timerRetry      = "retry"      // make a new attempt after a retryable failure
	timerExpiry     = "expiry"     // the time for an approval is over
	timerCompensate = "compensate" // undo a call that was partly done
)

// timerFailed is the wait before a timer is tried again that could not be served: somebody holds its
// trace, the trace fails a check, or what the timer is for was refused and may be possible later.
const timerFailed = 30 * time.Second

// setTimer stages a timer, set at since, and replaces the trace's outstanding timer.
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

// timerOf returns when the outstanding timer of a replayed trace is due, by its notes; 0 if it has none.
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

// after returns the time of repetition n by b, counted from now.
func (ts *timers) after(b Backoff, n uint32) (tga.Millis, error) {
	var r [8]byte
	if _, err := io.ReadFull(ts.rand, r[:]); err != nil {
		return 0, tga.Errorf(tga.StoreUnavailable, "no randomness: %w", err)
	}
	return tga.MillisOf(ts.clock.Now().Add(b.wait(n, binary.BigEndian.Uint64(r[:])))), nil
}

// timers serves the timers of the store, and holds what this process remembers about them.
type timers struct {
	store Store
	clock times
	rand  io.Reader
	serve func(ctx context.Context, key []byte, trace tga.ID, t timer) error // does what a timer is for

	// mu is held only to read or change the maps, never while the store is read or a timer is
	// served: up to timersAtOnce timers are served at once, and each may enter itself in rests.
	mu    sync.Mutex
	rests map[string]tga.Millis // key of a timer that failed, and until when it is not tried again
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
// they survive a restart. If several processes share a store, each runs this: of those that
// find the same timer, the one that gets the trace's lease serves it. When ctx ends, timers that
// are being served go on under life, so that a drain puts nothing in doubt, and RunTimers waits
// for them. It returns the error of ctx, or that of a store that can no longer be read.
func (rt *Runtime) RunTimers(ctx, life context.Context) error {
	return rt.timers.run(ctx, life)
}

func (ts *timers) run(ctx, life context.Context) error {
	for {
		next, err := ts.serveDue(ctx, life)
		if err != nil {
			return err
		}
		wait := time.Minute // so a change of the clock is seen within a minute
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

// FireTimers serves the timers that are due now, and those that become due meanwhile, and returns
// when the next timer is due; 0 means none.
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
				err := errLeft // if code of the embedder ends this goroutine, fire does not return
				defer func() {
					if err != nil {
						ts.lay(d.key, tga.MillisOf(ts.clock.Now().Add(timerFailed)))
					}
					if storeAway(err) {
						failed <- err
					}
					<-slots
				}()
				err = ts.fire(life, d.key, d.trace, d.timer)
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

// errLeft stands for the answer of a goroutine that code of the embedder has ended.
var errLeft error = tga.Errorf(tga.GenericStateError, "code of the embedder ended the goroutine of this run (runtime.Goexit)")

// wait takes all slots, so it returns when every goroutine that had a slot is done.
func wait(slots chan struct{}) {
	for range cap(slots) {
		slots <- struct{}{}
	}
}

// listDue lists the timers that are due and not in rests, and the time of the next timer.
func (ts *timers) listDue(ctx context.Context) (list []due, next tga.Millis, err error) {
	now := ts.clock.now()
	if err := ts.anchor(ctx); err != nil {
		return nil, 0, err
	}
	ts.rested(now)
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
		if at := max(set, ts.rest(a.Key)); at > now {
			if next == 0 || at < next {
				next = at
			}
			if set > now {
				break // the timers are in the order of their times: none after this is due
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

// anchor finds the timers that are due before their stored time. It does so when the process
// begins and when the clock has jumped. From now on, no timer waits longer than the wait it was
// set with. An expiry is due no later than that wait after it was set.
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
		// Round up to a whole millisecond: earlier, the timer would find nothing to do.
		if at := tga.MillisOf(ts.clock.Now().Add(left + time.Millisecond - 1)); at < due {
			early[string(a.Key)] = at
		}
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.early, ts.rests, ts.jumps, ts.known = early, map[string]tga.Millis{}, jumps, true
	return nil
}

// listEarly lists the early timers that are due, and the time of the next early timer.
func (ts *timers) listEarly(ctx context.Context, now tga.Millis) (list []due, next tga.Millis, err error) {
	ts.mu.Lock()
	early := maps.Clone(ts.early)
	ts.mu.Unlock()
	for key, at := range early {
		if at = max(at, ts.rest([]byte(key))); at > now {
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
			delete(ts.early, key) // it has ended, or is due by its key
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

// rest returns until when a timer is not tried again, 0 for one that has not failed.
func (ts *timers) rest(key []byte) tga.Millis {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.rests[string(key)]
}

// rested forgets the times that have passed, also of timers that have ended since.
func (ts *timers) rested(now tga.Millis) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	maps.DeleteFunc(ts.rests, func(_ string, until tga.Millis) bool { return until <= now })
}

func (ts *timers) lay(key []byte, until tga.Millis) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.rests[string(key)] = until
}

// fire serves one timer. An error means that the timer must be tried again later; how the
// trace ended is no error of the timer. If serving wrote anything, the same batch ended the
// timer. A timer that is still there after it was served has no purpose any more, and fire
// deletes it.
func (ts *timers) fire(ctx context.Context, key []byte, trace tga.ID, t timer) error {
	failed := ts.serve(ctx, key, trace, t)
	if storeAway(failed) {
		return failed
	}
	left, err := ts.store.Attachment(ctx, chain.AttachTimer, key)
	switch {
	case err != nil || left == nil:
		return err
	case failed != nil:
		return failed
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
	ctx, span := rt.spans.begin(ctx, "tgad.timer", trace, "", "")
	defer span.end(&res, &err)
	switch t.Kind {
	case timerRetry:
		return rt.settledTimer(rt.retries.retry(ctx, key, trace, t.Number))
	case timerCompensate:
		_, err := rt.compensations.undo(ctx, trace, whoRuntime, key)
		return rt.settledTimer(err)
	}
	l, err := rt.traces.resume(context.WithoutCancel(ctx), trace) // without a deadline it does not wait for the holder
	if err != nil {
		return err
	}
	defer rt.store.Release(l.lease)
	// Another process may have served it since it was listed: the tool would be asked once more.
	if left, err := rt.store.Attachment(ctx, chain.AttachTimer, key); err != nil || left == nil {
		return err
	}
	if t.Kind == timerProbe && l.state == tga.Executing || t.Kind == timerExpiry && l.state == tga.Pending {
		l.confirms = true
		err := rt.drive(ctx, l)
		if t.Kind == timerExpiry && errors.Is(err, tga.EscalationRequired) {
			return err // the timer fired before the approval expired, and must fire again
		}
		return rt.settledTimer(err)
	}
	return nil
}

// settledTimer keeps the errors that are about the store or the lease, and the refusals that may
// pass. All other errors say how the call ended, or refuse it for good.
func (rt *Runtime) settledTimer(err error) error {
	rt.goOn(&err)
	if errors.Is(err, tga.StoreUnavailable) || errors.Is(err, tga.StateLockAcquireFailed) || errors.Is(err, tga.StateRecoveryFailed) || mayPass(err) {
		return err
	}
	return nil
}

// mayPass reports whether what failed may succeed later as it is: the breaker of the tool server is
// open, a limit is reached, somebody else does not answer, or this process is ending.
func mayPass(err error) bool {
	code := tga.CodeOf(err)
	info, _ := code.Info()
	return err != nil && (code == "" || info.Retryable || info.HTTPStatus == 429 || info.HTTPStatus >= 500)
}
