package runtime

import (
	"context"
	"errors"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A key whose call is in doubt and parked may stand for another call instead, where a person
// has said that it runs again ([Connection.Again]). That call has a key of its own, which
// follows from the trace in doubt. Whoever comes with the first key is led to it, so that of
// two callers whose persons both say yes only one sends.
//
// The row that leads there is written under the lease of the trace in doubt, and only while
// that is in doubt. So nobody can settle the trace as "did not run", and have its key sent
// anew, beside a call that runs instead of it.

// insteadKey is the key of the call that runs instead of the one of a trace.
func insteadKey(trace tga.ID) string { return "again-" + trace.String() }

// instead leads a call with a key to the call that a person has let run in place of the one
// which the key was reserved for.
func (rt *Runtime) instead(ctx context.Context, req *BeginRequest) error {
	for req.Key != "" {
		record, err := rt.store.Record(ctx, req.ledgerKey())
		if err != nil || record == nil {
			return err
		}
		row, err := rt.store.Attachment(ctx, chain.AttachStream, keyspace.InsteadKey(record.TraceID))
		if err != nil {
			return err
		}
		if row == nil && req.Connection.Again != record.TraceID {
			return nil
		}
		// First: the key of another request, or of another user, is a conflict also where it
		// stands for a later call.
		if err := sameRequest(req.Request, record); err != nil {
			return err
		}
		if err := sameSubject(ctx, rt.store, req.Key, req.Connection.Subject, record); err != nil {
			return err
		}
		if row == nil {
			licensed, err := rt.licenseAgain(ctx, req, record.TraceID)
			if err != nil || !licensed {
				return err
			}
		}
		req.Key = insteadKey(record.TraceID)
		req.own = mergeMeta(req.own, tga.Meta{tga.MetaAgainOf: record.TraceID.String()})
	}
	return nil
}

// leadInstead is [Runtime.instead] for whoever begins a trace, with no person at hand to say yes:
// a key that was settled as "did not run" is not sent beside the call that ran in place of it.
// A trace that is there already goes on with the key that it has.
func (rt *Runtime) leadInstead(ctx context.Context, req *Request, given bool) error {
	if req.Key == "" {
		return nil
	}
	b := BeginRequest{Request: *req}
	record, err := rt.store.Record(ctx, b.ledgerKey())
	if err != nil || record == nil {
		return err
	}
	if row, err := rt.store.Attachment(ctx, chain.AttachStream, keyspace.InsteadKey(record.TraceID)); err != nil || row == nil {
		return err
	}
	if given {
		if _, err := rt.store.Load(ctx, req.TraceID); !errors.Is(err, tga.NotFound) {
			return err
		}
	}
	if b.Args, err = rt.mint.canonicalArgs(req.Args); err != nil {
		return err
	}
	if err := rt.instead(ctx, &b); err != nil {
		return err
	}
	req.Key, req.own = b.Key, b.own
	return nil
}

func (req *BeginRequest) ledgerKey() ledger.Key {
	return ledger.Key{Namespace: firstOf(req.Namespace, tga.DefaultNamespace), Server: req.Server, Tool: req.Tool, Key: req.Key}
}

// licenseAgain writes down that the person at the client has let the call of a trace run
// again. It reports false where that is not in doubt and parked any more.
func (rt *Runtime) licenseAgain(ctx context.Context, req *BeginRequest, trace tga.ID) (bool, error) {
	l, err := rt.traces.resume(ctx, trace)
	if err != nil {
		return false, err
	}
	defer rt.store.Release(l.lease)
	// Under the lease: nobody settles it between this look and the append.
	record, err := rt.store.Record(ctx, req.ledgerKey())
	if err != nil || record == nil || record.TraceID != trace || !record.InDoubt() || rt.executors.alive(record, l.policy) || rt.queries.licensed(l.policy) {
		return false, err
	}
	row := chain.Attachment{Kind: chain.AttachStream, Key: keyspace.InsteadKey(trace), Value: []byte(insteadKey(trace))}
	return true, l.append(ctx, chain.Batch{Attachments: []chain.Attachment{row}})
}

// askAbout says whether the person at the client is asked to let a call in doubt run again: only
// where the answer would count.
func (rt *Runtime) askAbout(ctx context.Context, l *loop, b *Begun) error {
	if l.call == nil || l.head.State != tga.Executing {
		return nil // the doubt is another trace's, which was given up
	}
	var err error
	b.Ask = l.remote.asks && !rt.queries.licensed(l.policy)
	b.Since, err = rt.results.lastHeard(ctx, l.lease.TraceID)
	return err
}
