package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// stalled is a store whose log syncs hang, one at a time, until they are let go.
type stalled struct {
	*engine.DB
	disk    *crashmem.FS
	hanging chan struct{} // a sync has begun
	letGo   chan error    // and ends with this, after the real one where it is nil
	freed   sync.Once     // all of them, by closing letGo
	syncs   atomic.Int64
}

// stall opens a store, and an append that hangs in its sync.
func stall(t *testing.T) (*stalled, <-chan error) {
	t.Helper()
	s := &stalled{disk: crashmem.New(), hanging: make(chan struct{}, 64), letGo: make(chan error)}
	fs := &faultFS{FS: s.disk, log: true}
	s.DB = open(t, "store", options(fs))
	t.Cleanup(s.free) // or a test that fails would wait for ever
	first := spec{trace: id(999)}.make(t).begin()
	lease := acquire(t, s.DB, id(999))
	fs.onSync(func(real func() error) error {
		s.syncs.Add(1)
		s.hanging <- struct{}{}
		if err := <-s.letGo; err != nil {
			return err
		}
		return real()
	})
	done := make(chan error, 1)
	go func() { _, err := s.Append(context.Background(), lease, first); done <- err }()
	<-s.hanging
	return s, done
}

// free lets every sync go, from now on without a stop.
func (s *stalled) free() { s.freed.Do(func() { close(s.letGo) }) }

func (s *stalled) finish(t *testing.T, first <-chan error) {
	t.Helper()
	s.free()
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func (s *stalled) submit(t *testing.T, lease chain.Lease, b chain.Batch) engine.Ticket {
	t.Helper()
	ticket, err := s.Submit(context.Background(), lease, b)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

// Appends of one trace are submitted while a sync hangs, each on the head that the one
// before will leave. They are durable together, in order, with one sync.
func TestSubmittedAppendsOfATraceShareASync(t *testing.T) {
	s, first := stall(t)
	m := spec{trace: id(1)}.make(t)
	lease := acquire(t, s.DB, id(1))
	var tickets []engine.Ticket
	for _, a := range []*tga.Artifact{m.request, m.decision, m.call} {
		tickets = append(tickets, s.submit(t, lease, m.batch(a)))
	}
	if n := s.Queued(); n != 3 {
		t.Errorf("%d batches are queued, want 3", n)
	}
	s.finish(t, first)
	for i, ticket := range tickets {
		done, err := ticket.Wait()
		if err != nil || done.Head.Seq != uint64(i+1) || len(done.Entries) != 1 {
			t.Errorf("append %d: %+v, %v", i+1, done, err)
		}
	}
	if n := s.syncs.Load(); n != 2 {
		t.Errorf("%d syncs, want that of the append before and one", n)
	}
	if st, err := s.State(context.Background(), id(1)); err != nil || st.LastSeq != 3 {
		t.Errorf("afterwards: %+v, %v", st, err)
	}
}

// What waits is cut into groups of at most MaxGroup bytes, each as full as its successor
// lets it be. No append is larger: what it has over wal.MaxInline lies in files of its own.
// Each group is a sync, and a full memtable may be one more.
func TestGroupsAreBounded(t *testing.T) {
	s, first := stall(t)
	var tickets []engine.Ticket
	for n := range uint64(20) {
		size := engine.MaxGroup / 64 / 16 * int(n%4+1) // 64 hex digits each
		trace := id(n + 10)
		m := spec{trace: trace, args: `{"note":"` + noise(n, size) + `"}`}.make(t)
		tickets = append(tickets, s.submit(t, acquire(t, s.DB, trace), m.batch(m.request)))
	}
	groups := s.QueuedSizes()
	members := 0
	for i, g := range groups {
		sum := 0
		for _, size := range g {
			sum += size
		}
		if sum > engine.MaxGroup {
			t.Errorf("group %d has %d bytes, at most %d", i, sum, engine.MaxGroup)
		}
		if i+1 < len(groups) && sum+groups[i+1][0] <= engine.MaxGroup {
			t.Errorf("group %d has %d bytes, and the next begins with %d", i, sum, groups[i+1][0])
		}
		members += len(g)
	}
	if members != len(tickets) || len(groups) < 3 {
		t.Errorf("%d batches in %d groups, want %d in some", members, len(groups), len(tickets))
	}
	s.finish(t, first)
	for _, ticket := range tickets {
		if _, err := ticket.Wait(); err != nil {
			t.Error(err)
		}
	}
	if n := int(s.syncs.Load()); n < 1+len(groups) {
		t.Errorf("%d syncs, want that of the append before and at least %d", n, len(groups))
	}
}

// An answer of Submit depends on the queued appends of the trace, so Submit gives it only once
// they are durable. Otherwise a crash could take these appends back after a caller has acted on
// a refusal, or on the answer that its batch is in the log already.
func TestNothingIsSaidOfAQueuedAppend(t *testing.T) {
	s, first := stall(t)
	m := spec{trace: id(1)}.make(t)
	lease := acquire(t, s.DB, id(1))
	ticket := s.submit(t, lease, m.batch(m.request))
	said := make(chan string, 2)
	go func() {
		_, err := s.Submit(context.Background(), lease, m.batch(m.call)) // no edge from PENDING
		wantCode(t, err, tga.StateInvalidTransition)
		said <- "refused"
		again, err := s.Submit(context.Background(), lease, m.batch(m.request))
		if err != nil {
			t.Error(err)
		}
		done, err := again.Wait()
		if err != nil || !done.Replayed {
			t.Errorf("again: %+v, %v", done, err)
		}
		said <- "replayed"
	}()
	select {
	case what := <-said:
		t.Errorf("%s while the sync hangs", what)
	case <-time.After(20 * time.Millisecond): // it may not be said later either, but then nothing is lost
	}
	s.finish(t, first)
	if _, err := ticket.Wait(); err != nil {
		t.Error(err)
	}
	<-said
	<-said
}

// An append to two traces follows what is queued of both, as one to a single trace does:
// it waits for no sync, commits after them, and what it says rests on both.
func TestAppendToTwoTracesFollowsWhatIsQueued(t *testing.T) {
	s, first := stall(t)
	one, two := spec{trace: id(1), key: "a"}.make(t), spec{trace: id(2), key: "b"}.make(t)
	a, b := acquire(t, s.DB, id(1)), acquire(t, s.DB, id(2))
	tickets := []engine.Ticket{s.submit(t, a, one.begin()), s.submit(t, b, two.begin())}
	remark := []chain.NewNote{{Kind: "remark", Who: "tester", Body: []byte(`{}`)}}
	// From either side, so that whichever trace is locked first, its tail is looked at.
	tickets = append(tickets,
		s.submit(t, a, chain.Batch{Notes: remark, Also: &chain.Also{Lease: b, Notes: remark}}),
		s.submit(t, b, chain.Batch{Notes: remark, Also: &chain.Also{Lease: a, Notes: remark}}))
	if n := s.Queued(); n != 4 {
		t.Errorf("%d batches are queued, want 4", n)
	}
	fresh := acquire(t, s.DB, id(3))
	tickets = append(tickets, s.submit(t, fresh, spec{trace: id(3), key: "c"}.make(t).begin()))
	undone := []chain.NewNote{{Kind: tga.NoteCompensated, Who: "tester", Body: []byte(`{}`)}}
	byBoth := chain.Batch{Notes: remark, Also: &chain.Also{Lease: a, Notes: undone}}
	m := spec{trace: id(4)}.make(t)
	new, bySecond := acquire(t, s.DB, id(4)), m.batch(m.request) // nothing of trace 4 is queued
	bySecond.Also = &chain.Also{Lease: fresh, Notes: undone}
	said := make(chan bool, 2)
	for lease, batch := range map[chain.Lease]chain.Batch{fresh: byBoth, new: bySecond} {
		go func() {
			_, err := s.Submit(context.Background(), lease, batch)
			wantCode(t, err, tga.StateInvalidTransition)
			said <- true
		}()
	}
	time.Sleep(50 * time.Millisecond) // they may not be said later either, but then nothing is lost
	if n := len(said); n > 0 {
		t.Errorf("%d refused while the sync hangs", n)
	}
	s.finish(t, first)
	for i, ticket := range tickets {
		if _, err := ticket.Wait(); err != nil {
			t.Errorf("append %d: %v", i, err)
		}
	}
	<-said
	<-said
	for n := range uint64(2) {
		if st, err := s.State(context.Background(), id(n+1)); err != nil || st.LastSeq != 3 {
			t.Errorf("afterwards: %+v, %v", st, err)
		}
		notes := 0
		for _, err := range s.Notes(context.Background(), id(n+1), 0) {
			if notes++; err != nil {
				t.Error(err)
			}
		}
		if notes != 2 {
			t.Errorf("%d notes", notes)
		}
	}
	if n := s.syncs.Load(); n != 2 {
		t.Errorf("%d syncs, want that of the append before and one", n)
	}
	if n := s.Locked(); n != 0 {
		t.Errorf("%d names are still locked", n)
	}
}

// The first of two traces reserves a key. While its append is still in the queue, the second trace
// cannot read the record.
func TestQueuedReservationHoldsItsKey(t *testing.T) {
	s, first := stall(t)
	one, two := spec{trace: id(1), key: "k"}.make(t), spec{trace: id(2), key: "k"}.make(t)
	ticket := s.submit(t, acquire(t, s.DB, id(1)), one.begin())
	lease := acquire(t, s.DB, id(2))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := s.Submit(ctx, lease, two.begin())
	wantCode(t, err, tga.StateLockAcquireFailed)
	s.finish(t, first)
	if _, err := ticket.Wait(); err != nil {
		t.Error(err)
	}
	_, err = s.Submit(context.Background(), lease, two.begin())
	wantCode(t, err, tga.IdempotencyKeyInFlight)
	if n := s.Locked(); n != 0 {
		t.Errorf("%d names are still locked", n)
	}
}

// A failed sync fails every append that was on its way, and leaves none of them readable
// in this process; the next open finds a prefix of each trace.
func TestFailedSyncFailsAllThatIsQueued(t *testing.T) {
	s, first := stall(t)
	ctx := context.Background()
	var tickets []engine.Ticket
	for n := range uint64(4) {
		m := spec{trace: id(n + 1)}.make(t)
		lease := acquire(t, s.DB, id(n+1))
		tickets = append(tickets, s.submit(t, lease, m.batch(m.request)), s.submit(t, lease, m.batch(m.decision)))
	}
	s.letGo <- nil
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	<-s.hanging // the group of all eight
	s.letGo <- errDisk
	for i, ticket := range tickets {
		if _, err := ticket.Wait(); tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("append %d: %v", i, err)
		}
	}
	_, err := s.Load(ctx, id(1))
	wantCode(t, err, tga.StoreUnavailable)
	s.free()
	_ = s.Close() // whatever it says, the disk is looked at next

	after := open(t, "store", options(s.disk.CrashClone(vfs.CrashCloneCfg{})))
	if st, err := after.State(ctx, id(999)); err != nil || st.LastSeq != 3 {
		t.Errorf("the append acknowledged before: %+v, %v", st, err)
	}
	for n := range uint64(4) {
		if st, err := after.State(ctx, id(n+1)); err != nil || st.LastSeq != 0 {
			t.Errorf("trace %d: %+v, %v", n+1, st, err)
		}
	}
}

// Power goes at each of many syncs while one goroutine keeps appends of many traces under
// way: whatever was told to be durable is there, and every trace is a prefix of what was
// submitted to it.
func TestPowerCutKeepsWhatTicketsSaid(t *testing.T) {
	const traces, cuts = 12, 40
	disk := crashmem.New()
	fs := &faultFS{FS: disk, log: true}
	db := open(t, "store", options(fs))
	var told [traces]atomic.Uint64 // newest sequence number whose ticket returned
	type cut struct {
		disk *crashmem.FS
		told [traces]uint64
	}
	taken := make(chan cut, cuts)
	fs.onSync(func(real func() error) error {
		// Told before the copy is made: so what was told is in it.
		var c cut
		for i := range told {
			c.told[i] = told[i].Load()
		}
		c.disk = disk.CrashClone(vfs.CrashCloneCfg{})
		select {
		case taken <- c:
		default:
		}
		return real()
	})
	var made_ [traces]made
	var leases [traces]chain.Lease
	for i := range made_ {
		made_[i] = spec{trace: id(uint64(i) + 1)}.make(t)
		leases[i] = acquire(t, db, id(uint64(i)+1))
	}
	waiters := make(chan func(), 3*traces)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for f := range waiters {
			f()
		}
	}()
	for step := range 3 {
		for i, m := range made_ {
			ticket, err := db.Submit(context.Background(), leases[i], m.batch([]*tga.Artifact{m.request, m.decision, m.call}[step]))
			if err != nil {
				t.Fatal(err)
			}
			waiters <- func() {
				done, err := ticket.Wait()
				if err != nil {
					t.Error(err)
				}
				told[i].Store(done.Head.Seq)
			}
		}
	}
	close(waiters)
	<-ended
	fs.onSync(nil)
	close(taken)
	looked := 0
	for c := range taken {
		looked++
		after := open(t, "store", options(c.disk))
		for i := range told {
			st, err := after.State(context.Background(), id(uint64(i)+1))
			if err != nil || st.LastSeq < c.told[i] || st.LastSeq > 3 {
				t.Errorf("cut %d, trace %d: %+v, %v; %d was told", looked, i, st, err, c.told[i])
			}
		}
	}
	if looked == 0 {
		t.Error("no cut was made")
	}
}

// Close waits for every submitted append, even if nobody waits for its ticket.
func TestCloseCommitsWhatIsQueued(t *testing.T) {
	s, first := stall(t)
	m := spec{trace: id(1)}.make(t)
	s.submit(t, acquire(t, s.DB, id(1)), m.begin())
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	s.finish(t, first)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	after := open(t, "store", options(s.disk))
	if st, err := after.State(context.Background(), id(1)); err != nil || st.LastSeq != 3 {
		t.Errorf("after close: %+v, %v", st, err)
	}
}

// A goroutine that submits faster than the disk syncs is blocked at the limit, and not earlier.
func TestAppendsOnTheirWayAreBounded(t *testing.T) {
	s, first := stall(t) // one of them
	var last engine.Ticket
	for n := range uint64(engine.MaxQueued - 1) {
		m := spec{trace: id(n + 2000)}.make(t)
		last = s.submit(t, acquire(t, s.DB, id(n+2000)), m.batch(m.request))
	}
	m := spec{trace: id(5000)}.make(t)
	lease := acquire(t, s.DB, id(5000))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := s.Submit(ctx, lease, m.batch(m.request))
	wantCode(t, err, tga.StateLockAcquireFailed)
	s.finish(t, first)
	if _, err := last.Wait(); err != nil {
		t.Error(err)
	}
	append_(t, s.DB, lease, m.batch(m.request))
}
