package runtime

import (
	"context"
	"encoding/binary"
	"strconv"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// derivedKeys makes keys for calls that have none, and counts how often the same call was
// answered.
type derivedKeys struct {
	store Store
	mint  *minter
}

// derive gives a request without a key the derived key, if it names a scope. The
// occurrence is how often the same call was answered in that step. So two intended
// calls stay two calls, and a repeat after a lost answer is a repeat.
func (k *derivedKeys) derive(ctx context.Context, req *Request) error {
	if req.Key != "" || req.Scope == "" {
		return nil
	}
	args, err := k.mint.canonicalArgs(req.Args)
	if err != nil {
		return err
	}
	base, err := ledger.DeriveKey(req.Scope, req.Step, req.Tool, args, 0)
	if err != nil {
		return err
	}
	n, err := k.occurrence(ctx, firstOf(req.Namespace, tga.DefaultNamespace), req.Server, base)
	if err != nil {
		return err
	}
	if req.Key, err = ledger.DeriveKey(req.Scope, req.Step, req.Tool, args, n); err != nil {
		return err
	}
	req.own = mergeMeta(req.own, tga.Meta{
		tga.MetaDerivedKey: base, tga.MetaOccurrence: tga.Number(strconv.FormatUint(n, 10)),
	})
	return nil
}

func (k *derivedKeys) occurrence(ctx context.Context, namespace, server, base string) (uint64, error) {
	raw, err := k.store.Attachment(ctx, chain.AttachStream, keyspace.OccurrenceKey(namespace, server, base))
	if err != nil || raw == nil {
		return 0, err
	}
	if len(raw) != 8 {
		return 0, tga.Errorf(tga.StateChecksumMismatch, "the counter of derived key %s has %d bytes", base, len(raw))
	}
	return binary.BigEndian.Uint64(raw), nil
}
