package runtime

import (
	"context"
	"encoding/binary"
	"time"

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
}

// executorOf returns the rows that commit with an attempt of a remote executor: the row of
// its begin id, and the lock that it names, if that lock can be seen from here.
func (l *loop) executorOf(attempt uint32) []chain.Attachment {
	if l.remote == nil {
		return nil
	}
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

// forget deletes the row about the executor, in the batch of the effect.
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

// permitLeft returns how long the permit of the newest attempt stays fresh; zero or less if it is
// stale.
func (e *executors) permitLeft(record *ledger.Record, policy Policy) time.Duration {
	return policy.PermitTime - e.clock.Certain(record.Attempts.Newest.Time())
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
