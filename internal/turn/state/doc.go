// Package state keeps an agent's state across turns: keys with JSON values, changed by
// transactions (OSSA 0.2.9 §1 phase 6, §3).
//
// A turn begins one transaction, reads and writes through it, and commits it in the batch of its
// own journal. This package guarantees that the values of a scope and their versions are durable
// together or not at all. The [Isolation] says what other transactions may see, and when.
// Transactions are optimistic: nobody waits for an open transaction, however long its turn is
// parked. A commit holds its scope for as long as the append takes. Only other commits, new
// transactions and reads of committed values in that scope wait for it.
//
// # Isolation
//
// The serial order of transactions is the order of their commits, which is the order of the
// versions in the store. yes = the level permits it:
//
//	                          read_uncommitted  read_committed  repeatable_read  serializable
//	dirty read                yes               no              no               no
//	non-repeatable read       yes               yes             no               no
//	read skew                 yes               yes             no               no
//	phantom                   yes               yes             no               no
//	lost update               yes               yes             no               no
//	write skew                yes               yes             yes              no
//
// No level permits that a part of a commit is seen without the rest of it once it is committed,
// that two commits are interleaved (dirty write), or that an append is lost.
//
//   - Dirty read: a value that another transaction has set and may yet discard is read.
//   - Non-repeatable read: a key read twice has two values.
//   - Read skew: two keys read one after the other are of different commits, although one
//     GetMany would have shown one.
//   - Phantom: a key that did not exist exists when Exists or GetMany looks again; with
//     [Tx.Keys], that it is listed.
//   - Lost update: a key is read, changed by another, and then set to what follows from
//     the old value.
//   - Write skew: two transactions read both of two keys and each sets another one.
//
// What each level does:
//
//   - ReadUncommitted reads the transaction's own writes, else the newest pending write of
//     any other transaction of the scope, else what is committed. It has no savepoints and
//     no Rollback; an error of the turn discards it like any other.
//   - ReadCommitted reads what is committed when the read begins. One GetMany is of one
//     instant.
//   - RepeatableRead reads what was committed when the transaction began. Its commit is
//     refused, STATE_CONFLICT, where a key that it read and wrote has changed since, or the
//     value that it read has expired.
//   - Serializable reads likewise. Its commit is refused where any key that it read has
//     changed, or the value has expired, unless it wrote nothing: then it is as if run when
//     it began. A transaction that wrote is as if run at the instant of its commit.
//
// A set or a delete of a key that was not read is blind: the last commit wins, at every level. An
// append to a key that was not read is blind too: two turns that append to one list both commit,
// and the list has both values, in the order of the commits. An append is a conflict if the key
// no longer has a list, or the list has become too long.
//
// # Expiry
//
// A value with a time to live is stored with the instant at which it ends. From that instant on
// it is absent, by the clock at the time of the read. At a level that promises repeatable reads,
// the first read of a key decides. An append keeps the list's instant.
//
// # In the store
//
// A scope has a stream whose id is a digest of its mode and id. Item 0 is the scope's head: the
// version, and the transaction that made it. The other items list the scope's keys. Each key has
// a stream of its own, with one item for each version that somebody may still read; a commit
// drops the others. Nothing is cached: a scope without an open transaction takes no memory.
//
// # Invariants
//
//	whole      a commit is in the store whole or not at all           [Tx.Commit]  TestPowerCutLeavesAllOrNothing
//	shown      nobody sees a commit before it is durable              [Tx.Commit]  TestCommitIsSeenOnlyWhenDurable
//	decided    the head in the store says whether a commit happened   [Tx.Commit]  TestHeadDecidesNotTheCallback
//	levels     each level permits and excludes what the table says    [Tx]         TestAnomaliesByLevel
//	serial     serializable commits are equal to a serial order       [Tx.Commit]  TestHistoriesAgreeWithTheModel
//	kept       a version that an open transaction reads is not dropped [Tx.Commit] TestSnapshotOutlivesCommitsAndCollection
//	repeated   [Tx.Apply] of [Tx.Since] makes the same changes        [Tx.Apply]   TestOperationsRepeatAfterACrash
package state

import "github.com/tgad/tgad/schemas/tga"

// Mode says how long state lives.
type Mode string

// The modes. None keeps the state for one turn only, Session for the session, Persistent for the
// agent across sessions.
const (
	None       Mode = "none"
	Session    Mode = "session"
	Persistent Mode = "persistent"
)

// Check returns VALIDATION_ERROR for an unknown mode. The empty Mode is Session.
func (m Mode) Check() error {
	switch m {
	case None, Session, Persistent, "":
		return nil
	}
	return tga.Errorf(tga.ValidationError, "state mode %q: not one of none, session, persistent", string(m))
}

// Isolation says what a transaction may see of others.
type Isolation string

// The levels. Each excludes more than the one before it.
const (
	ReadUncommitted Isolation = "read_uncommitted"
	ReadCommitted   Isolation = "read_committed"
	RepeatableRead  Isolation = "repeatable_read"
	Serializable    Isolation = "serializable"
)

// Check returns VALIDATION_ERROR for an unknown level. The empty Isolation is Serializable.
func (i Isolation) Check() error {
	switch i {
	case ReadUncommitted, ReadCommitted, RepeatableRead, Serializable, "":
		return nil
	}
	return tga.Errorf(tga.ValidationError, "isolation level %q: not one of read_uncommitted, read_committed, repeatable_read, serializable", string(i))
}

// snapshot says that a level reads what was committed when the transaction began.
func (i Isolation) snapshot() bool { return i == RepeatableRead || i == Serializable }

// Scope names the state that a transaction works on.
type Scope struct {
	Mode Mode
	// ID is the session's id, or the agent's for Persistent: 1..255 bytes of UTF-8. For None it
	// is not needed.
	ID string
}
