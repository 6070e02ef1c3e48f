package runtime

import (
	"context"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// commit is [loop.commit], as a step of run.
func (rt *Runtime) commit(ctx context.Context, l *loop) error { return l.commit(ctx) }

// commit makes what is staged durable.
func (l *loop) commit(ctx context.Context) error {
	b := chain.Batch{Artifacts: l.staged, Notes: l.notes, Attachments: append(l.attachments, l.prepared...)}
	if len(b.Artifacts) == 0 && len(b.Notes) == 0 && len(b.Attachments) == 0 {
		return nil
	}
	var err error
	if b.Also, err = l.undone(); err != nil {
		return err
	}
	err = l.append(ctx, b)
	if b.Also != nil && takesNone(err, l.origin.TraceID) {
		// What the undoing call did is recorded all the same.
		b.Also = nil
		err = l.append(ctx, b)
	}
	if err != nil {
		return err
	}
	l.staged, l.notes, l.attachments, l.prepared = nil, nil, nil, nil
	for _, a := range b.Attachments {
		if a.Kind == chain.AttachTimer && a.Value != nil {
			l.timers.wake() // only now is the timer in the store
		}
	}
	return nil
}

// append appends after the head that the loop knows. If somebody else has appended since, the
// lease was broken, and the store refuses the append.
func (l *loop) append(ctx context.Context, b chain.Batch) error {
	b.Expect = &l.head
	done, err := l.store.Append(ctx, l.lease, b)
	if err != nil {
		return err
	}
	l.head, l.trace = done.Head, done.Trace
	return nil
}

// known returns the trace as this run knows it. Nobody else appends to the trace while this run
// has the lease. If the lease is overtaken, this run does not see later appends, and its answer
// is true as of its own last append.
func (l *loop) known(ctx context.Context) (*chain.Trace, error) {
	if l.trace != nil {
		return l.trace, nil
	}
	return l.store.Load(ctx, l.lease.TraceID)
}

// record returns the ledger record of the call's key. It does not look up a key again that was
// just found to be unused: the append that reserves the key compares, and the store refuses it
// if another trace was faster. Then the record is read.
func (l *loop) record(ctx context.Context, key ledger.Key) (*ledger.Record, error) {
	unused := l.unused
	if l.unused = (ledger.Key{}); unused == key {
		return nil, nil
	}
	return l.store.Record(ctx, key)
}

// codeOr returns the code in err's chain, or code.
func codeOr(err error, code tga.Code) tga.Code {
	if c := tga.CodeOf(err); c != "" {
		return c
	}
	return code
}
