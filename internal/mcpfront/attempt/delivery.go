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

// That a client has its answer must be noted by the log: until then the same call again is taken
// for a repeat. Nobody waits for that note but the client's next call, which is not sent before
// it is durable. So the note waits a moment for that call and is made durable by its begin, in
// the sync that the begin pays for anyway. Without a next call it is noted by itself.

// noteDelay is how long a note waits for the client's next call. A client that calls again at
// once takes less; one that takes longer does not notice the sync. Until the note is durable, a
// crash makes the same call again be served the recorded answer.
const noteDelay = 10 * time.Millisecond

// Delivery is an answer on its way to a client, and then to be noted by the log.
type Delivery struct {
	to    *Recipient
	name  string // of its call
	trace tga.ID
	given *wait.Latch // the client has it, or will not
	over  *wait.Latch // it is noted, or will not be
	// ready says that the client has it and nobody is noting it; moved is closed when that
	// changes. Both under the desk's lock.
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

// set changes ready. The desk's lock is held.
func (d *Delivery) set(ready bool) {
	d.ready = ready
	close(d.moved)
	d.moved = make(chan struct{})
}

// Undisturbed waits while an answer to a call of this name is on its way to the client.
func (s *Desk) Undisturbed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(name)
}

// free waits until no answer to a call of this name is on its way. The desk's lock is held.
func (s *Desk) free(name string) {
	for s.places[name] != nil {
		busy := s.places[name].given.C
		s.mu.Unlock()
		<-busy
		s.mu.Lock()
	}
}

// Owed returns the answers of a conversation that are being given or may not be noted yet.
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

// Deliver gives the answers of some calls to the client, by their names, and where that took
// them whole has the log move on: the same call again is another one from then on. A client can
// only go on to its next call once it has this answer, so the names are held meanwhile; and a
// call that came meanwhile is not sent before they are noted ([Attempt.send]): what a client was
// seen to go on from stays counted, whenever the shim is killed.
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

// place takes the names of answers that are about to be given. Two that want some of the same
// names take them in one order, and do not wait for each other in a circle.
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

// handedOver frees the names of answers that the client has, or will not have.
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

// noted ends a delivery. The desk's lock is held.
func (s *Desk) noted(d *Delivery) {
	delete(s.notes, d)
	d.over.Set()
	d.set(false)
}

// along takes the deliveries of a conversation that the begin of a call is to note, all at once.
// The answer to an earlier call of the same name must be noted, or among them: else the log would
// take this call for its repeat. Where it is not, wait is closed when that changes.
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

// arrived says whether deliveries that somebody has taken are noted.
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

// noteDown waits for a begin that takes a delivery along. If none has until late, or the
// client will make no more calls, it is noted by itself.
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
		<-moved // who has it gives it back, or ends it
	}
}

// noteNow notes a delivery by itself.
//
// Only after the client has it: told before, a crash in between would make the repeat of a call
// whose answer was lost another call. A crash from here on, before another call was sent, makes
// the next one of this name be served this one's answer, which sends nothing twice.
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

// NoteAll has the log know at once of every answer that the client was given, and waits for
// that, for a time. The client makes no more calls.
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
