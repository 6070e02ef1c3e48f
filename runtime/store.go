package runtime

import (
	"context"
	"iter"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// AttachmentReader reads the values that were written with appends. Working states and the
// journals of turns consist of such values. With this interface the same code reads them from a
// store and over the daemon's socket ([client.Client]).
//
// [client.Client]: https://pkg.go.dev/github.com/tgad/tgad/runtime/client#Client
type AttachmentReader interface {
	// Attachment returns a value written with an append, nil if there is none.
	Attachment(ctx context.Context, kind chain.AttachmentKind, key []byte) ([]byte, error)
	// Attachments yields those whose key starts with prefix, in key order. An error with a key is about that
	// attachment, and more attachments may follow. An error without a key is the last thing it yields.
	Attachments(ctx context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error]
}

// Store keeps traces, ledger records and attachments. Package engine is one;
// package storetest holds the suite that every Store passes.
//
// What a read returns is durable: a Store never shows a batch whose sync has not
// returned. Otherwise a caller could act on evidence that a crash takes away.
// If the arguments of a method do not name a namespace and the runtime knows it, the context
// does: [NamespaceOf].
// Errors are [*tga.Error]. After the first failed write or sync every method returns
// STORE_UNAVAILABLE, and the fate of the failed append is unknown.
type Store interface {
	// Acquire grants the lease of a trace, which need not exist yet. While another
	// holds it, Acquire waits until ctx ends; a ctx without a deadline does not wait.
	// It then fails with STATE_LOCK_ACQUIRE_FAILED and leaves the holder's lease alone.
	Acquire(ctx context.Context, trace tga.ID) (chain.Lease, error)
	// Overtake grants the lease of a trace at once, whoever holds it. From then on the
	// holder's appends are refused; bytes that it has already sent are not stopped. With
	// lentOnly it overtakes only a holder outside this process. For a holder inside it, it
	// waits as Acquire does.
	Overtake(ctx context.Context, trace tga.ID, lentOnly bool) (chain.Lease, error)
	// Current reports whether a lease is still its trace's newest: nobody has overtaken it. A store
	// that cannot find that out reports false.
	Current(lease chain.Lease) bool
	// While returns the context of a send under a current lease. It ends with ctx, or earlier:
	// before another process could overtake the lease unnoticed by this one. A store that only
	// one process can open returns ctx.
	While(ctx context.Context, lease chain.Lease) (context.Context, context.CancelFunc)
	// Departed reports whether the holder that was granted this epoch is known to have been gone
	// before this store was opened.
	Departed(epoch chain.Epoch) bool
	// Held reports whether a lease, of whichever process, is held now. A lease is not held once it was
	// released or overtaken, or once its holder is gone, even if another holder has the trace by now.
	Held(lease chain.Lease) bool
	// Release ends a lease. Releasing a lease that is not current has no effect. If a trace is
	// released without an effect, the holder of its reservation counts as gone.
	Release(lease chain.Lease)

	// Append checks, links and commits b (docs/SEMANTICS.md) and returns once it is on
	// disk. ctx bounds waiting before the commit, never the commit.
	Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error)

	// Load replays a trace: NOT_FOUND when it has no entry; STATE_RECOVERY_FAILED,
	// wrapping the cause, when an entry or note fails a check. Replay is of all entries: it
	// never starts at a checkpoint.
	Load(ctx context.Context, trace tga.ID) (*chain.Trace, error)
	// Entries yields the entries after a sequence number, in order. Notes likewise.
	Entries(ctx context.Context, trace tga.ID, after uint64) iter.Seq2[chain.Entry, error]
	Notes(ctx context.Context, trace tga.ID, after uint32) iter.Seq2[tga.Note, error]

	// WriteCheckpoint seals the trace's current head and returns the checkpoint.
	WriteCheckpoint(ctx context.Context, lease chain.Lease) (tga.Checkpoint, error)

	// Record returns the ledger record of a key, nil if the key was never used.
	Record(ctx context.Context, key ledger.Key) (*ledger.Record, error)
	// Await returns when the record of key differs from seen in status, trace or attempts. It
	// also returns when no lease of seen.TraceID is held and its newest attempt is not a remote
	// executor's: a remote executor works without a lease. When ctx ends, it returns the error
	// of ctx. It does not return the record: the caller reads it again.
	Await(ctx context.Context, key ledger.Key, seen ledger.Record) error
	// Holder says whether somebody holds the lease of a trace now.
	Holder(trace tga.ID) ledger.Liveness

	// OpenTraces yields the traces that are not terminal, oldest id first.
	OpenTraces(ctx context.Context) iter.Seq2[chain.OpenTrace, error]

	AttachmentReader

	// Quarantined reports whether acknowledged appends may be missing from the log, because
	// somebody took a restored or damaged store into service at the time since. Then a missing
	// record proves nothing about a call begun before, or about a key that seems unused.
	Quarantined() (since tga.Millis, ok bool)
	// NewestTS returns a time not before any ts or commit time stored. A clock behind
	// it has gone backwards and licenses nothing. A store that cannot tell now returns
	// [tga.LastMillis], which must not be stored.
	NewestTS() tga.Millis
	// RequestDigest returns the digest that the store's ledger records keep of a request:
	// [tga.RequestDigest], or a keyed form of it.
	RequestDigest(p tga.Proposal) tga.Digest
	// Shared reports whether other processes may write to the store while this one has it open. What a process
	// must do in turn then has a lease in the store, and not only a lock in this process.
	Shared() bool
	// Secret returns 32 random bytes made with the store and kept by it, from which
	// permits are derived: a permit then survives a restart without being stored.
	Secret() [32]byte
}
