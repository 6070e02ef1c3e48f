package runtime

import (
	"context"
	"encoding/binary"
	"strconv"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// deriveKey gives a request without a key the derived one, where it names a scope. The
// occurrence is how often the very same call was answered in that step: two intended
// calls stay two, and a repeat after a lost answer is a repeat.
func (rt *Runtime) deriveKey(ctx context.Context, req *Request) error {
	if req.Key != "" || req.Scope == "" {
		return nil
	}
	args, err := rt.canonicalArgs(req.Args)
	if err != nil {
		return err
	}
	base, err := ledger.DeriveKey(req.Scope, req.Step, req.Tool, args, 0)
	if err != nil {
		return err
	}
	n, err := rt.occurrence(ctx, firstOf(req.Namespace, tga.DefaultNamespace), req.Server, base)
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

// occurrenceKey is where the counter of a derived key lies.
func occurrenceKey(namespace, server, base string) []byte {
	hash := ledger.Key{Namespace: namespace, Server: server, Tool: "tgad occurrence v1", Key: base}.Hash()
	id := tga.ID(hash[:16])
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return append(id[:], make([]byte, 8)...)
}

func (rt *Runtime) occurrence(ctx context.Context, namespace, server, base string) (uint64, error) {
	raw, err := rt.store.Attachment(ctx, chain.AttachStream, occurrenceKey(namespace, server, base))
	if err != nil || raw == nil {
		return 0, err
	}
	if len(raw) != 8 {
		return 0, tga.Errorf(tga.StateChecksumMismatch, "the counter of derived key %s has %d bytes", base, len(raw))
	}
	return binary.BigEndian.Uint64(raw), nil
}

// Delivered says that the answer of a trace without a key of its caller's reached that
// caller whole: an identical call is a new one from now on. Without it, as after a crash,
// it may be a repeat of this one. For any other trace it does nothing.
// STATE_INVALID_TRANSITION where the trace is not terminal.
func (rt *Runtime) Delivered(ctx context.Context, trace tga.ID) error {
	t, err := rt.store.Load(ctx, trace)
	if err != nil {
		return err
	}
	if t.Request != nil && t.Request.Meta.String(tga.MetaIdentity) != "" {
		return rt.delivered(ctx, trace, t.Request.Meta.String(tga.MetaIdentity))
	}
	l, err := rt.resume(ctx, trace)
	if err != nil {
		return err
	}
	defer rt.store.Release(l.lease)
	base := l.request.Meta.String(tga.MetaDerivedKey)
	number, ok := l.request.Meta[tga.MetaOccurrence].(tga.Number)
	if base == "" || !ok {
		return nil
	}
	if !l.state.Terminal() {
		return tga.Errorf(tga.StateInvalidTransition, "trace is %s: there is no answer to deliver", l.state).In(trace)
	}
	n, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		return tga.Errorf(tga.StateRecoveryFailed, "meta.occurrence %q: %w", number, err).In(trace)
	}
	server := l.request.Request.Proposal.ToolServer
	now, err := rt.occurrence(ctx, l.namespace, server, base)
	if err != nil || now > n {
		return err
	}
	value := binary.BigEndian.AppendUint64(nil, n+1)
	return rt.append(ctx, l, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachStream, Key: occurrenceKey(l.namespace, server, base), Value: value}}})
}
