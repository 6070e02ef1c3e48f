package runtime

import (
	"context"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A begin id is its submitter's own name of one Begin. A row of the store says which trace it
// led to. The row is written in the batch of the request that the Begin makes, or of the attempt
// that it is given on an earlier trace. So a submitter who lost the answer, or who asks again
// after people decided, finds that trace in whatever state, and never opens a second one. Like
// the ledger record of a key, the row is never deleted.

// ownBegin is what is known about a begin id, under the lock of that id.
type ownBegin struct {
	key     [32]byte
	asked   [32]byte // digest of what is asked
	trace   tga.ID   // trace that the id led to before; zero for a new id
	release func()
}

const beginRowSize = 16 + 32 // trace id, digest of what was asked

// beginIDs knows which trace each begin id led to.
type beginIDs struct {
	store Store
	names *nameLocks // one for each id, so that the same Begin twice at once is answered in turn
	mint  *minter
}

// own looks for the trace of an earlier Begin of the same submitter and id. The caller calls
// release when the Begin is answered; until then a second Begin with the id waits.
// IDEMPOTENCY_KEY_CONFLICT if the id was used for another request.
func (b *beginIDs) own(ctx context.Context, req *BeginRequest) (own ownBegin, err error) {
	if req.Args, err = b.mint.canonicalArgs(req.Args); err != nil {
		return own, err
	}
	own.key = ledger.BeginHash(req.Namespace, req.Submitter, req.BeginID)
	// This is all of the caller's input that identifies the call. A key that is derived later is
	// a function of it.
	own.asked = keyspace.Hash(req.Server, req.Tool, string(req.Args), req.Key, req.Scope, req.Step, req.Connection.Subject)
	if own.release, err = b.names.lock(ctx, "begin "+string(own.key[:])); err != nil {
		return own, tga.Errorf(tga.IdempotencyKeyInFlight, "the same begin is being answered: %w", err)
	}
	if err = b.find(ctx, &own); err != nil {
		own.release()
	}
	return own, err
}

func (b *beginIDs) find(ctx context.Context, own *ownBegin) error {
	raw, err := b.store.Attachment(ctx, chain.AttachBeginID, keyspace.DigestKey(own.key))
	switch {
	case err != nil || raw == nil:
		return err
	case len(raw) != beginRowSize:
		return tga.Errorf(tga.StateChecksumMismatch, "the row of a begin id has %d bytes, want %d", len(raw), beginRowSize)
	}
	own.trace = tga.ID(raw[:16])
	if [32]byte(raw[16:]) != own.asked {
		return tga.Errorf(tga.IdempotencyKeyConflict, "the begin_id was used for another request: another call needs another id").At("/begin_id").In(own.trace)
	}
	return nil
}

// leadsTo returns the row that leads from the id to a trace.
func (own *ownBegin) leadsTo(trace tga.ID) chain.Attachment {
	return chain.Attachment{Kind: chain.AttachBeginID, Key: keyspace.DigestKey(own.key), Value: append(trace[:], own.asked[:]...)}
}

// beginRow returns the row of the loop's begin id, if it must still be written.
func (l *loop) beginRow() []chain.Attachment {
	if l.remote.begun.Key == nil {
		return nil
	}
	return []chain.Attachment{l.remote.begun}
}

// firstID returns a, or b if a is zero.
func firstID(a, b tga.ID) tga.ID {
	if a.IsZero() {
		return b
	}
	return a
}
