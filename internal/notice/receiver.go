package notice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/clock"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/duty"
	"github.com/tgad/tgad/schemas/tga"
)

// Sink takes notices. A test notice may be put while another goroutine puts a notice.
type Sink interface {
	// Put returns nil once the notice is taken.
	Put(ctx context.Context, n *Notice) error
	// Close is called once nothing more is put.
	Close() error
}

// Receiver is one receiver of notices.
type Receiver struct {
	Conf config.Notify
	Sink Sink
	Duty duty.Duty // keeps the receiver's book
}

// Times of a receiver.
const (
	firstPause = time.Second     // after an error; doubled after each further one
	mostPause  = time.Minute     // the longest such pause
	saveEvery  = 5 * time.Second // between two writes of the book if nothing was told
	leaveTime  = 3 * time.Second // to keep the book when the process stops
	mostFates  = 500             // matters whose fate is looked up in one step
)

// receiver sends the notices of one receiver. Only one goroutine calls step.
type receiver struct {
	conf  config.Notify
	sink  Sink
	duty  duty.Duty
	mine  atomic.Bool // this process is on duty, as far as it knows
	world World
	clock *clock.Clock
	host  string
	say   *slog.Logger

	book  *book
	dirty bool      // the book has changed since it was kept
	saved time.Time // when the last try to keep the book was
	retry time.Time // after an error: do not try before this time
	pause time.Duration
	more  bool // there are more than mostFates matters whose fate is not known

	mu     sync.Mutex
	stats  Stats
	trying time.Time // since when a notice waits to be taken; zero = none does
	due    time.Time // when the next matter becomes due, by the newest look; zero = none does
}

// Stats are the counters of a receiver.
type Stats struct {
	ID, Type string
	Taken    uint64     // notices that it took since the process began
	Failures uint64     // tries to send it a notice that failed
	Late     float64    // for how many seconds it has not taken the current notice
	Last     tga.Millis // when it took the newest notice; 0 = it took none
	Trouble  string     // the last error; "" = none
}

// wants says whether the receiver gets notices of a matter, by its configuration.
func (r *receiver) wants(m *Matter) bool {
	on := false
	for _, kind := range r.conf.On {
		on = on || kind == m.Kind
	}
	c := &r.conf
	return on && (m.TraceID.IsZero() || (c.Namespace == "" || c.Namespace == m.Namespace) && (c.Server == "" || c.Server == m.Server) && (c.Tool == "" || c.Tool == m.Tool))
}

// passed is the time since a moment in the book. It is not wrong if the wall clock was changed since.
func (r *receiver) passed(since tga.Millis) time.Duration { return r.clock.Certain(since.Time()) }

// take asks to be on duty, unless this process already is, and reads the book. If the book cannot be read, it begins with an
// empty one: everything is told again.
func (r *receiver) take(ctx context.Context) {
	if r.mine.Load() {
		return
	}
	raw, mine, err := r.duty.Take(ctx)
	if !mine && err != nil {
		if ctx.Err() == nil {
			r.log(err)
		}
		return
	}
	book, unread := readBook(raw)
	r.mu.Lock()
	r.stats.Last = book.Told
	r.mu.Unlock()
	if !mine {
		r.log(nil)
		return
	}
	if err = errors.Join(err, unread); err != nil {
		r.say.Warn("what the receiver was told cannot be read: it is told of everything again", "error", err)
	}
	r.book, r.dirty, r.saved, r.pause, r.retry = book, false, time.Time{}, 0, time.Time{}
	r.mine.Store(true)
	r.say.Info("this process tells people of what waits for them")
}

// turn makes a step if this process is on duty.
func (r *receiver) turn(ctx context.Context, all []Matter) {
	on, cancel := r.duty.While(ctx)
	defer cancel()
	var err error
	if on.Err() == nil {
		err = r.step(on, all)
	}
	if errors.Is(err, duty.ErrLost) || on.Err() != nil && ctx.Err() == nil {
		// The process that is on duty next repeats what was told since the book was kept.
		r.say.Info("another process tells people now, or may")
		r.idle()
		r.mine.Store(false)
	}
}

// leave keeps the book, and lets another process be on duty.
func (r *receiver) leave() error {
	if !r.mine.Swap(false) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	var err error
	if r.dirty {
		if err = r.save(ctx); errors.Is(err, duty.ErrLost) {
			return nil // the process that is on duty now has its own book
		}
	}
	return errors.Join(err, r.duty.Leave(ctx))
}

// step compares what waits with what was told, and sends a notice of what is due.
func (r *receiver) step(ctx context.Context, all []Matter) error {
	r.setDue(time.Time{}) // while this step hangs, nothing is due: looks need not come sooner for it
	due, waiting, err := r.compare(ctx, all)
	pausing := r.book.Told != 0 && r.passed(r.book.Told) < r.conf.Pause.D || time.Now().Before(r.retry)
	tell := len(due) > 0 && !pausing
	left := len(due) > 0
	if tell {
		r.offer(due)
	}
	if r.dirty && (tell || time.Since(r.saved) >= saveEvery) {
		err = errors.Join(err, r.save(ctx))
	}
	if tell {
		n, failed := r.tell(ctx, due, waiting)
		if failed == nil {
			// Update the book only now: it must not say that a matter was told before it was.
			r.mark(due, n)
			failed, left = r.save(ctx), false
		}
		err = errors.Join(err, failed)
	} else if len(due) == 0 {
		r.idle()
	}
	r.expect(all, left)
	if ctx.Err() == nil && (err != nil || !pausing) {
		r.log(err) // during a pause nothing was tried, so keep the last error
	}
	return err
}

// expect computes when the next matter becomes due. left says that one is due already and was not told.
func (r *receiver) expect(all []Matter, left bool) {
	now := left || r.more
	wait, some := time.Duration(0), now
	for i := range all {
		m := &all[i]
		e := r.book.Matters[m.id()]
		if now || e == nil || !r.wants(m) || e.Told != 0 && r.conf.Every.D == 0 {
			continue
		}
		in := r.conf.After.D - r.passed(e.First)
		if e.Told != 0 {
			in = r.conf.Every.D - r.passed(e.Told)
		}
		if !some || in < wait {
			wait, some = in, true
		}
	}
	if r.book.Told != 0 {
		wait = max(wait, r.conf.Pause.D-r.passed(r.book.Told))
	}
	if some {
		r.setDue(time.Now().Add(max(wait, time.Until(r.retry))))
	}
}

func (r *receiver) setDue(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = at
}

// isDue says whether a matter is due for the receiver now, by the newest look.
func (r *receiver) isDue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.due.IsZero() && !time.Now().Before(r.due)
}

// compare updates the book with what waits. It returns what is due, and how much waits by kind.
func (r *receiver) compare(ctx context.Context, all []Matter) (due []told, waiting map[string]int, err error) {
	// Use one moment for all matters. Otherwise matters that came together could be told in two notices.
	began := r.clock.Now()
	now, passed := tga.MillisOf(began), func(since tga.Millis) time.Duration { return r.passed(since) - r.clock.Now().Sub(began) }
	waiting = map[string]int{}
	there := make(map[string]bool, len(all)) // the matters that wait; true: the receiver wants them
	for i := range all {
		m, id := &all[i], all[i].id()
		if there[id] = r.wants(m); !there[id] {
			continue
		}
		waiting[m.Kind]++
		e := r.book.Matters[id]
		if e == nil {
			e = &entry{First: now}
			r.book.Matters[id], r.dirty = e, true
		}
		t := told{*m, e}
		switch {
		case e.Told == 0 && passed(e.First) >= r.conf.After.D:
			t.Event = isNew
		case e.Told != 0 && r.conf.Every.D > 0 && passed(e.Told) >= r.conf.Every.D:
			t.Event = isAgain
		default:
			continue
		}
		due = append(due, t)
	}
	asked := 0
	r.more = false
	for id, e := range r.book.Matters {
		wanted, here := there[id]
		if here && wanted {
			continue
		}
		if here || e.Told == 0 && !e.Offered {
			r.forget(id)
			continue
		}
		if asked++; asked > mostFates {
			r.more = true
			break
		}
		m, bad := matterOf(id)
		if bad != nil {
			return due, waiting, bad // readBook refuses such ids, so this does not happen
		}
		m.Event = isResolved
		fate, bad := r.world.Fate(ctx, &m)
		switch {
		case bad != nil:
			err = bad
		case fate == Settled && r.conf.Resolved:
			due = append(due, told{m, e})
		case fate != Open:
			r.forget(id)
		}
	}
	return due, waiting, err
}

// offer notes in the book, before a notice is sent, that the receiver may learn of its matters. It may take the
// notice although the answer is lost. Then it must also be told when the matter is settled.
func (r *receiver) offer(due []told) {
	for i := range due {
		if e := due[i].entry; r.conf.Resolved && !e.Offered {
			e.Offered, r.dirty = true, true
		}
	}
}

func (r *receiver) forget(id string) {
	delete(r.book.Matters, id)
	r.dirty = true
}

// tell sends the receiver a notice of what is due.
func (r *receiver) tell(ctx context.Context, due []told, waiting map[string]int) (*Notice, error) {
	r.begin()
	n, err := r.compose(ctx, due, waiting)
	if err == nil {
		err = r.put(ctx, n)
	}
	r.tried(err)
	if err != nil {
		r.pause = min(max(2*r.pause, firstPause), mostPause)
		r.retry = time.Now().Add(r.pause)
		return nil, err
	}
	r.pause, r.retry = 0, time.Time{}
	return n, nil
}

// mark notes in the book that the due matters were told.
func (r *receiver) mark(due []told, n *Notice) {
	now := tga.MillisOf(r.clock.Now())
	for i := range due {
		if due[i].Event == isResolved {
			r.forget(due[i].id())
			continue
		}
		due[i].Told, due[i].Times = now, due[i].Times+1
	}
	r.book.Told, r.dirty = now, true
	r.mu.Lock()
	r.stats.Last = now
	r.mu.Unlock()
	r.say.Info("people were told of what waits for them", "id", n.ID, "new", count(n.New), "again", count(n.Again), "resolved", count(n.Resolved))
}

// put sends the receiver a notice. The configuration limits how long that may take.
func (r *receiver) put(ctx context.Context, n *Notice) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.conf.Timeout.D, fmt.Errorf("it was not taken within %s", r.conf.Timeout.D))
	defer cancel()
	err := r.sink.Put(ctx, n)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	return err
}

// save keeps the book. If that fails, it is tried again later; until then the process has it in memory.
func (r *receiver) save(ctx context.Context) error {
	r.saved = time.Now()
	if err := r.book.save(ctx, r.duty); err != nil {
		return err
	}
	r.dirty = false
	return nil
}

// begin notes that a notice waits to be taken.
func (r *receiver) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trying.IsZero() {
		r.trying = time.Now()
	}
}

// idle notes that no notice waits to be taken.
func (r *receiver) idle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trying = time.Time{}
}

// tried counts a try to send a notice.
func (r *receiver) tried(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.stats.Failures++
		return
	}
	r.stats.Taken, r.trying = r.stats.Taken+1, time.Time{}
}

// log logs the error of a receiver when it changes.
func (r *receiver) log(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	r.mu.Lock()
	was := r.stats.Trouble
	r.stats.Trouble = text
	r.mu.Unlock()
	switch {
	case text == was:
	case text == "":
		r.say.Info("people can be told again")
	default:
		r.say.Warn("people are not told of what waits for them", "error", text)
	}
}

// now returns the receiver's current counters.
func (r *receiver) now() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	if !r.trying.IsZero() {
		s.Late = time.Since(r.trying).Seconds()
	}
	return s
}
