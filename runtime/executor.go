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

// A remote executor may name a file that it has locked for as long as it lives. Where the
// lock can be seen to be free its permit is stale at once, and not only when its time is
// over. That is all it says: a dead executor is no fenced attempt, what it sent may still
// arrive, and only the licence permits another send.

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

// forgetExecutor strikes the lock out with the effect.
func (rt *Runtime) forgetExecutor(l *loop) error {
	if l.call.Meta.String(tga.MetaAttempt) != tga.AttemptExternal {
		return nil
	}
	row := keyspace.ExecutorKey(l.lease.TraceID)
	raw, err := rt.store.Attachment(context.Background(), chain.AttachStream, row)
	if err == nil && raw != nil {
		l.attachments = append(l.attachments, chain.Attachment{Kind: chain.AttachStream, Key: row})
	}
	return err
}

// permitLeft is how much is left of the time in which the remote executor of the newest attempt is
// taken to be at work; zero or less where that is over.
func (rt *Runtime) permitLeft(record *ledger.Record, policy Policy) time.Duration {
	return policy.PermitTime - rt.clock.Certain(record.Attempts.Newest.Time())
}

// executorAlive says whether the remote executor of the newest attempt is taken to be at
// work. That licenses nothing: who is taken to be alive too long only delays a re-send.
func (rt *Runtime) executorAlive(record *ledger.Record, policy Policy) bool {
	const takenBack = 1 // of the newest attempt: nobody is at it, and those before it were over when it was marked
	if record.Status != ledger.Reserved || !record.Attempts.External || record.Attempts.UnsentMask&takenBack != 0 || rt.gaveUp(record) ||
		rt.permitLeft(record, policy) <= 0 {
		return false
	}
	raw, err := rt.store.Attachment(context.Background(), chain.AttachStream, keyspace.ExecutorKey(record.TraceID))
	if err != nil || len(raw) < 4 || binary.BigEndian.Uint32(raw) != record.Attempts.Count {
		return true // a store that cannot be read is found out by who asks it next
	}
	return rt.opts.Lock(string(raw[4:])) != ledger.HolderGone
}
