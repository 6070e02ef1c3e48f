package runtime

import (
	"context"
	"encoding/binary"
	"maps"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/clock"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A remote executor may name a file that it keeps locked while it lives. If the lock is seen
// to be free, the permit is stale at once, before its time is over. A free lock says no more
// than that: what the dead executor sent may still arrive, so only the licence permits another
// send.

// executors is what this process knows of remote executors: which permit each of their attempts
// has, and whether the executor is assumed to be still executing it.
type executors struct {
	store Store // its secret, from which permits are made, and the locks that executors name
	clock times
	lock  func(path string) ledger.Liveness // [Options.Lock]

	mu   sync.Mutex
	ages map[tga.ID]permitAge // of the permits that this process has given, by trace
	most int                  // with so many ages, those that count no more are dropped
}

// permitAge is what this process remembers of a permit that it has given.
//
// The log says when the attempt was made, but by a clock that may be set: while the wall clock is behind
// the newest stored time, that time is the ts of every attempt, and all of them would look old. And the
// policy says how long a permit is fresh now, but the executor may have been told more.
type permitAge struct {
	attempt uint32
	read    clock.Reading
	age     time.Duration // of the permit, when it was read
	told    time.Duration // from this age on, the executor begins no send
}

// keptAges is how many ages are kept, at least, before those that count no more are dropped.
const keptAges = 1024

// begins remembers that an attempt of a remote executor begins now. It returns the rows that commit with
// the attempt: the row of its begin id, and the lock that it names, if that lock can be seen from here.
func (e *executors) begins(l *loop, attempt uint32) []chain.Attachment {
	if l.remote == nil {
		return nil
	}
	e.remember(l.lease.TraceID, permitAge{attempt: attempt, read: e.clock.Read()})
	rows := l.beginRow()
	if l.remote.lock != "" {
		rows = append(rows, l.executorRow(attempt, l.remote.lock))
	}
	return rows
}

// executorRow returns the row about the executor of an attempt: the lock that it holds while it
// lives, or "" if it has given the attempt up.
func (l *loop) executorRow(attempt uint32, lock string) chain.Attachment {
	value := append(binary.BigEndian.AppendUint32(nil, attempt), lock...)
	return chain.Attachment{Kind: chain.AttachStream, Key: keyspace.ExecutorKey(l.lease.TraceID), Value: value}
}

// forget drops what is known of the executor: the row about it goes in the batch of the effect.
func (e *executors) forget(l *loop) error {
	if l.call.Meta.String(tga.MetaAttempt) != tga.AttemptExternal {
		return nil
	}
	e.mu.Lock()
	delete(e.ages, l.lease.TraceID)
	e.mu.Unlock()
	row := keyspace.ExecutorKey(l.lease.TraceID)
	raw, err := e.store.Attachment(context.Background(), chain.AttachStream, row)
	if err == nil && raw != nil {
		l.attachments = append(l.attachments, chain.Attachment{Kind: chain.AttachStream, Key: row})
	}
	return err
}

// permitLeft returns how long the permit of the newest attempt stays fresh; zero or less if it is
// stale. It is fresh at least as long as its executor was told that it may begin the send, also if the
// policy has a shorter time by now.
func (e *executors) permitLeft(record *ledger.Record, policy Policy) time.Duration {
	age, told := e.age(record)
	return max(policy.PermitTime, told) - age
}

// age returns how old the permit of the newest attempt is, and until which age its executor was told that
// it may begin the send; 0 if this process has told it nothing.
func (e *executors) age(record *ledger.Record) (age, told time.Duration) {
	e.mu.Lock()
	a, known := e.ages[record.TraceID]
	e.mu.Unlock()
	if !known || a.attempt != record.Attempts.Count {
		return e.clock.Certain(record.Attempts.Newest.Time()), 0
	}
	return a.age + e.clock.Passed(a.read), a.told
}

// tell remembers that the executor of the newest attempt is told to begin its send within a time from now.
func (e *executors) tell(record *ledger.Record, within time.Duration) {
	age, told := e.age(record)
	e.remember(record.TraceID, permitAge{record.Attempts.Count, e.clock.Read(), age, max(told, age+within)})
}

func (e *executors) remember(trace tga.ID, a permitAge) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ages == nil {
		e.ages = map[tga.ID]permitAge{}
	}
	if e.ages[trace] = a; len(e.ages) <= max(e.most, keptAges) {
		return
	}
	// The traces of these have not ended here: they are in doubt, or another process has ended them.
	maps.DeleteFunc(e.ages, func(_ tga.ID, a permitAge) bool { return a.age+e.clock.Passed(a.read) >= max(a.told, time.Hour) })
	e.most = 2 * len(e.ages)
}

// alive reports whether the remote executor of the newest attempt is assumed to be still
// executing it. To assume that for too long is harmless: it only delays a re-send.
func (e *executors) alive(record *ledger.Record, policy Policy) bool {
	const takenBack = 1 // bit of the newest attempt, if it was taken back; earlier attempts were over when it was marked
	if record.Status != ledger.Reserved || !record.Attempts.External || record.Attempts.UnsentMask&takenBack != 0 ||
		e.permitLeft(record, policy) <= 0 {
		return false
	}
	raw, err := e.store.Attachment(context.Background(), chain.AttachStream, keyspace.ExecutorKey(record.TraceID))
	if err != nil || len(raw) < 4 || binary.BigEndian.Uint32(raw) != record.Attempts.Count {
		return true // if the store cannot be read, the next read of it reports that
	}
	lock := string(raw[4:])
	return lock != "" && e.lock(lock) != ledger.HolderGone
}

// visible returns path if the lock can be seen from here, else "".
func (e *executors) visible(path string) string {
	if path == "" || e.lock(path) == ledger.HolderUnknown {
		return ""
	}
	return path
}

// mark returns the note of attempt n, of this process or of a remote executor.
func (e *executors) mark(l *loop, n uint32) chain.NewNote {
	m := ledger.Mark{Attempt: n, Epoch: uint64(l.lease.Epoch)}
	if l.remote != nil {
		m.BeginID = l.remote.beginID
		m.Permit = e.permit(l.lease.TraceID, n, l.remote).digest()
	}
	return chain.NewNote{Kind: tga.NoteAttempt, Who: whoRuntime, Body: m.Body()}
}
