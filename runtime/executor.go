package runtime

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A remote executor may name a file that it has locked for as long as it lives. Where the
// lock can be seen to be free its permit is stale at once, and not only when its time is
// over. That is all it says: a dead executor is no fenced attempt, what it sent may still
// arrive, and only the licence permits another send.

// executors is what this process knows of remote executors: which permit each of their attempts
// has, and whether one is still taken to be at work.
type executors struct {
	store Store // its secret, from which permits are made, and the locks that executors name
	clock times
	lock  func(path string) ledger.Liveness // [Options.Lock]

	// givenUp is trace id → number of the attempt that its executor gave up. It is a sync.Map
	// because a key is written once or twice and read by every run that meets the trace; a reader
	// that comes too early takes the executor to be alive, and that only delays a re-send.
	givenUp sync.Map
}

// executorOf is what commits with an attempt that a remote executor is given: the row of
// its begin id, and the lock that it names, where that can be seen.
func (l *loop) executorOf(attempt uint32) []chain.Attachment {
	if l.remote == nil {
		return nil
	}
	rows := l.beginRow()
	if l.remote.lock != "" {
		value := append(binary.BigEndian.AppendUint32(nil, attempt), l.remote.lock...)
		rows = append(rows, chain.Attachment{Kind: chain.AttachStream, Key: keyspace.ExecutorKey(l.lease.TraceID), Value: value})
	}
	return rows
}

// forget strikes the lock out with the effect.
func (e *executors) forget(l *loop) error {
	if l.call.Meta.String(tga.MetaAttempt) != tga.AttemptExternal {
		return nil
	}
	row := keyspace.ExecutorKey(l.lease.TraceID)
	raw, err := e.store.Attachment(context.Background(), chain.AttachStream, row)
	if err == nil && raw != nil {
		l.attachments = append(l.attachments, chain.Attachment{Kind: chain.AttachStream, Key: row})
	}
	return err
}

// permitLeft is how much is left of the time in which the remote executor of the newest attempt is
// taken to be at work; zero or less where that is over.
func (e *executors) permitLeft(record *ledger.Record, policy Policy) time.Duration {
	return policy.PermitTime - e.clock.Certain(record.Attempts.Newest.Time())
}

// giveUp keeps that the executor of an attempt is at it no more.
func (e *executors) giveUp(trace tga.ID, attempt uint32) { e.givenUp.Store(trace, attempt) }

// alive says whether the remote executor of the newest attempt is taken to be at
// work. That licenses nothing: who is taken to be alive too long only delays a re-send.
func (e *executors) alive(record *ledger.Record, policy Policy) bool {
	const takenBack = 1 // of the newest attempt: nobody is at it, and those before it were over when it was marked
	if record.Status != ledger.Reserved || !record.Attempts.External || record.Attempts.UnsentMask&takenBack != 0 || e.gaveUp(record) ||
		e.permitLeft(record, policy) <= 0 {
		return false
	}
	raw, err := e.store.Attachment(context.Background(), chain.AttachStream, keyspace.ExecutorKey(record.TraceID))
	if err != nil || len(raw) < 4 || binary.BigEndian.Uint32(raw) != record.Attempts.Count {
		return true // a store that cannot be read is found out by who asks it next
	}
	return e.lock(string(raw[4:])) != ledger.HolderGone
}

// visible returns the path of a lock that can be seen from here, else "".
func (e *executors) visible(path string) string {
	if path == "" || e.lock(path) == ledger.HolderUnknown {
		return ""
	}
	return path
}

// mark is the note of attempt n, by this process or by a remote executor.
func (e *executors) mark(l *loop, n uint32) chain.NewNote {
	m := ledger.Mark{Attempt: n, Epoch: uint64(l.lease.Epoch)}
	if l.remote != nil {
		m.BeginID = l.remote.beginID
		m.Permit = e.permit(l.lease.TraceID, n, l.remote).digest()
	}
	return chain.NewNote{Kind: tga.NoteAttempt, Who: whoRuntime, Body: m.Body()}
}
