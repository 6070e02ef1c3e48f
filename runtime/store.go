package runtime

import (
	"context"
	"iter"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// AttachmentReader reads the values that were written with appends. Working states and the
// journals of turns are made of them: with it they are read from a store, and over the
// daemon's socket ([client.Client]), by the same code.
//
// [client.Client]: https://pkg.go.dev/github.com/tgad/tgad/runtime/client#Client
type AttachmentReader interface {
	// Attachment returns a value written with an append, nil where there is none.
	Attachment(ctx context.Context, kind chain.AttachmentKind, key []byte) ([]byte, error)
	// Attachments yields those whose key starts with prefix, in key order. An error with a key is about that
	// one, and others may follow; one without a key is the last.
	Attachments(ctx context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error]
}

// Store keeps traces, ledger records and attachments. Package engine is one;
// package storetest holds the suite that every Store passes.
//
// What a read returns is durable: a Store never shows a batch whose sync has not
// returned, for a caller that acts on it would act on evidence a crash can take away.
// The context of a question says the namespace that it is about where the question does
// not, and the runtime knows it: [NamespaceOf].
// Errors are [*tga.Error]. After the first failed write or sync every method returns
// STORE_UNAVAILABLE, and the fate of the failed append is unknown.
type Store interface {
	// Acquire grants the lease of a trace, which need not exist yet. While another
	// holds it, Acquire waits until ctx ends; a ctx without a deadline does not wait.
	// It then fails with STATE_LOCK_ACQUIRE_FAILED and leaves the holder's lease alone.
	Acquire(ctx context.Context, trace tga.ID) (chain.Lease, error)
	// Overtake grants the lease of a trace at once, whoever holds it. The holder's appends
	// are refused from then on; bytes that it has on the wire are not stopped. With
	// lentOnly it overtakes only a holder outside this process, and waits for any other as
	// Acquire does.
	Overtake(ctx context.Context, trace tga.ID, lentOnly bool) (chain.Lease, error)
	// Current reports whether a lease is still its trace's newest: nobody has overtaken it.
	Current(lease chain.Lease) bool
	// While returns the context of a send under a lease that is current. It ends with ctx, and
	// before that where another process could overtake the lease without this one's knowing: a
	// store that one process has returns ctx.
	While(ctx context.Context, lease chain.Lease) (context.Context, context.CancelFunc)
	// Departed reports whether whoever was granted this epoch is known to have been gone before
	// this store was opened.
	Departed(epoch chain.Epoch) bool
	// Held reports whether a lease, of whichever process, is held now. It is not where it was released or
	// overtaken, or where its holder is gone: whoever has the trace then is another.
	Held(lease chain.Lease) bool
	// Release ends a lease. Releasing one that is not current has no effect. A
	// reservation whose trace is released without an effect has a holder that is gone.
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

	// Record returns the ledger record of a key, nil where the key was never used.
	Record(ctx context.Context, key ledger.Key) (*ledger.Record, error)
	// Await returns when the record of key is no longer what seen says (its status,
	// trace or attempts differ), or when no lease of seen.TraceID is held and its newest
	// attempt is not a remote executor's (which needs no lease to be at work); at ctx's
	// end with ctx's error. It reads nothing to the caller: read again.
	Await(ctx context.Context, key ledger.Key, seen ledger.Record) error
	// Holder says whether somebody holds the lease of a trace now.
	Holder(trace tga.ID) ledger.Liveness

	// OpenTraces yields the traces that are not terminal, oldest id first.
	OpenTraces(ctx context.Context) iter.Seq2[chain.OpenTrace, error]

	AttachmentReader

	// Quarantined says that acknowledged appends may be missing from the log: somebody
	// took a restored or damaged store into service at the time since. Of a call begun
	// before, and of a key that seems unused, the log's silence then proves nothing.
	Quarantined() (since tga.Millis, ok bool)
	// NewestTS returns a time not before any ts or commit time stored. A clock behind
	// it has gone backwards and licenses nothing.
	NewestTS() tga.Millis
	// RequestDigest returns what the store's ledger records have of a request:
	// [tga.RequestDigest], or what a secret makes of it.
	RequestDigest(p tga.Proposal) tga.Digest
	// Secret returns 32 random bytes made with the store and kept by it, from which
	// permits are derived: a permit then survives a restart without being stored.
	Secret() [32]byte
}
