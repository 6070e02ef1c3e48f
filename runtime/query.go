package runtime

import (
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// queries makes the questions that a run asks the ledger: they contain what the runtime knows about
// the time, the store and who executes a call. It reads, and changes nothing.
type queries struct {
	store     Store
	clock     times
	executors *executors
	licences  *licences
	profile   ledger.Profile
}

// of makes the question of this run to the ledger.
func (qs *queries) of(l *loop, record *ledger.Record) ledger.Query {
	q := qs.ofTime(l, record)
	if record == nil {
		return q
	}
	q.Holder = qs.holder(l, record)
	if record.TraceID == q.Trace && record.InDoubt() && replaced(qs.store, q.Trace) {
		q.Licence = ledger.Licence{} // no licence of the tool says that both calls may run
	}
	return q
}

// ofTime makes a query that does not say who executes the call. To find that out costs a look at
// the executor's lock, and [ledger.Query.SendWithin] does not need it.
func (qs *queries) ofTime(l *loop, record *ledger.Record) ledger.Query {
	q := ledger.Query{
		Record:      record,
		Trace:       l.lease.TraceID,
		Request:     qs.store.RequestDigest(l.request.Request.Proposal),
		Retry:       record != nil && l.request.Meta.String(tga.MetaRetryOf) == record.TraceID.String(),
		Waited:      record != nil && l.awaited == record.TraceID,
		Profile:     qs.profile,
		Licence:     qs.licences.now(l),
		Attempted:   l.attempted,
		Suspect:     qs.suspect(l, record),
		Remote:      l.remote != nil,
		Now:         qs.clock.now(),
		SendTimeout: l.policy.SendTimeout,
	}
	if record == nil {
		return q
	}
	q.NewestTS = qs.store.NewestTS() // may be a question to a database: a key that is new needs none
	if first := record.Attempts.First; q.Now >= q.NewestTS {
		// A wall clock that was set back lengthens no window.
		q.Now = max(q.Now, first+tga.Millis(qs.clock.Longest(first.Time()).Milliseconds()))
	}
	return q
}

// suspect reports whether the store may have lost records of this call. While the store is in
// quarantine, that is possible for every write call begun before the quarantine. It is also
// possible for a later write call whose key this trace has not reserved, unless its caller vouches
// for the key. A key that the log knows from before the quarantine is not fresh, whatever the caller says.
func (qs *queries) suspect(l *loop, record *ledger.Record) bool {
	since, in := qs.store.Quarantined()
	switch {
	case !in || l.class() == tga.ClassRead:
		return false
	case l.begun != 0 && l.begun < since:
		return true
	case record != nil && record.TraceID == l.lease.TraceID:
		return false
	}
	return l.request.Meta[tga.MetaFresh] != true || record != nil && record.Attempts.First < since
}

// holder reports whether somebody executes the call that has the key.
func (qs *queries) holder(l *loop, record *ledger.Record) ledger.Liveness {
	if qs.executors.alive(record, l.policy) {
		// A remote executor holds a permit, not the lease. To assume that it is alive for a
		// while delays a licensed re-send, and never permits one.
		return ledger.HolderAlive
	}
	if record.TraceID == l.lease.TraceID {
		return ledger.HolderGone // this run has the lease, so nobody else executes the call
	}
	return qs.store.Holder(record.TraceID)
}
