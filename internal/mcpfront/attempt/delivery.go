package attempt

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// The log must note that a client has its answer: until then it takes the same call for a repeat.
// Only the client's next call waits for that note, because it is not sent before the note is
// durable. So the note waits a moment for the next call, and travels in that call's begin, which
// syncs anyway. If no next call comes, the note is made in a request of its own.

// noteDelay is how long a note waits for the client's next call. A client that calls at once
// needs less; a client that needs longer does not notice the extra sync. If the shim crashes
// before the note is durable, the same call again is served the recorded answer.
const noteDelay = 10 * time.Millisecond

// Delivery is an answer that is being given to a client, and whose delivery the log then notes.
type Delivery struct {
	to    *Recipient
	name  string // of the call
	trace tga.ID
	given *wait.Latch // the client has the answer, or will never have it
	over  *wait.Latch // the delivery is noted, or will never be
	// ready says that the client has the answer and nobody is noting the delivery; moved is
	// closed when ready changes. The desk's lock guards both.
	ready bool
	moved chan struct{}
}

// Recipient is a client that is given answers, over one connection.
type Recipient struct {
	life context.Context // of the connection
	rush *wait.Latch     // the client makes no more calls
}

// NewRecipient is the client of a connection that lasts as long as life.
func NewRecipient(life context.Context) *Recipient { return &Recipient{life, wait.NewLatch()} }

// set changes ready. The caller holds the desk's lock.
func (d *Delivery) set(ready bool) {
	d.ready = ready
	close(d.moved)
	d.moved = make(chan struct{})
}

// Undisturbed waits until no answer to a call of this name is being given to the client.
func (s *Desk) Undisturbed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(name)
}

// free does the waiting of [Desk.Undisturbed]. The caller holds the desk's lock, which free
// releases while it waits.
func (s *Desk) free(name string) {
	for s.places[name] != nil {
		busy := s.places[name].given.C
		s.mu.Unlock()
		<-busy
		s.mu.Lock()
	}
}

// Owed returns the deliveries of a conversation that are under way or not noted yet.
func (s *Desk) Owed(to *Recipient) (all []*Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d := range s.notes {
		if d.to == to {
			all = append(all, d)
		}
	}
	return all
}

// Deliver gives the client the answers of some calls (name to trace). If the client took them
// whole, Deliver has the log note it: from then on the same call is a new call. The names are
// held while the answers are given, so an identical call waits. A call that comes meanwhile is
// not sent before the deliveries are noted ([Attempt.send]). So whenever the shim is killed, an
// answer that the client had before its next call was sent counts as delivered.
func (s *Desk) Deliver(to *Recipient, answers map[string]tga.ID, give func() error) {
	all := s.place(to, answers)
	err := give()
	s.handedOver(answers, all, err == nil)
	if err != nil {
		return
	}
	late := make(chan struct{})
	t := time.AfterFunc(s.NoteDelay, func() { close(late) })
	defer t.Stop()
	for _, d := range all {
		s.noteDown(d, late)
	}
}

// place takes the names of answers that are about to be given. It takes them in sorted order,
// so two callers that want the same names cannot deadlock.
func (s *Desk) place(to *Recipient, answers map[string]tga.ID) (all []*Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		d := &Delivery{to: to, name: name, trace: answers[name], given: wait.NewLatch(), over: wait.NewLatch(), moved: make(chan struct{})}
		s.free(name)
		s.places[name], s.notes[d] = d, true
		all = append(all, d)
	}
	return all
}

// handedOver frees the names of answers once the client has them, or will never have them.
func (s *Desk) handedOver(answers map[string]tga.ID, all []*Delivery, has bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range answers {
		delete(s.places, name)
	}
	for _, d := range all {
		d.given.Set()
		if d.set(has); !has {
			s.noted(d)
		}
	}
}

// noted ends a delivery. The caller holds the desk's lock.
func (s *Desk) noted(d *Delivery) {
	delete(s.notes, d)
	d.over.Set()
	d.set(false)
}

// along takes the deliveries of a conversation that the begin of a call is to note. The delivery
// of an earlier call of the same name must be noted already or be among them: else the log would
// take this call for a repeat of that one. If somebody else is noting it, along takes none and
// returns wait, which is closed when that changes.
func (s *Desk) along(to *Recipient, name string) (all []*Delivery, wait <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d := range s.notes {
		if d.to == to && d.name == name {
			if !d.ready {
				return nil, d.moved
			}
			all = append(all, d)
		}
	}
	for d := range s.notes {
		if d.to == to && d.ready && d.name != name && len(all) < runtime.MaxDelivered {
			all = append(all, d)
		}
	}
	for _, d := range all {
		d.set(false)
	}
	return all, nil
}

// arrived gives back deliveries that [Desk.along] took: noted if durable, else ready again.
func (s *Desk) arrived(all []*Delivery, durable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range all {
		if durable {
			s.noted(d)
		} else {
			d.set(true)
		}
	}
}

// noteDown waits for a begin that notes a delivery. If none does before late is closed, or if
// the client makes no more calls, noteDown notes it in a request of its own.
func (s *Desk) noteDown(d *Delivery, late <-chan struct{}) {
	select {
	case <-d.over.C:
		return
	case <-late:
	case <-d.to.rush.C:
	case <-d.to.life.Done():
	}
	for !d.over.Is() {
		s.mu.Lock()
		mine, moved := d.ready, d.moved
		if mine {
			d.set(false)
		}
		s.mu.Unlock()
		if mine {
			s.noteNow(d)
			return
		}
		<-moved // the begin that took the delivery gives it back or ends it
	}
}

// noteNow notes one delivery in a request of its own.
//
// It runs only after the client has the answer. If it ran before, a crash in between would lose
// the answer, and the client's repeat would be taken for a new call. If the shim crashes after
// the client has the answer and before the note is durable, the next call of this name is served
// this answer, which sends nothing twice.
func (s *Desk) noteNow(d *Delivery) {
	defer s.arrived([]*Delivery{d}, true)
	until := time.Now().Add(s.o.LogTimeout)
	pause := wait.Pause{}
	for {
		err := asklog.Patient(s.Life, func(ctx context.Context) error { return s.o.Log.Delivered(ctx, d.trace) })
		if err == nil {
			return
		}
		if !errors.Is(err, tga.StoreUnavailable) || time.Now().After(until) || s.Life.Err() != nil {
			s.Log.Error("a delivered answer was not noted: the same call again is served this one's answer", "trace", d.trace, "error", err)
			return
		}
		select {
		case <-time.After(pause.Next()):
		case <-s.Life.Done():
		}
	}
}

// NoteAll notes at once every answer that the client was given, and waits at most d for it. It
// is called when the client makes no more calls.
func (s *Desk) NoteAll(to *Recipient, d time.Duration) {
	to.rush.Set()
	until := time.After(d)
	for _, d := range s.Owed(to) {
		select {
		case <-d.over.C:
		case <-until:
			return
		}
	}
}
