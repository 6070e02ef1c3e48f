package runtime

import (
	"context"
	"errors"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Suppose that a call is in doubt and parked, and a person says that it runs again
// ([Connection.Again]). Then another call, the replacement, runs instead of it, and the first key
// stands for the replacement. The replacement has a key of its own, derived from the trace in
// doubt. Every caller with the first key is led to it. So if two persons say yes for two callers,
// still only one sends.
//
// The row that leads to the replacement is written under the lease of the trace in doubt, and
// only while that trace is in doubt. So nobody can settle the trace as "did not run", and have its
// key sent again, besides the replacement.

// insteadKey returns the key of the call that runs instead of the call of a trace.
func insteadKey(trace tga.ID) string { return "again-" + trace.String() }

// stands finds the replacements of calls. It needs no lock of its own: see above.
type stands struct {
	store     Store
	mint      *minter
	traces    *traces
	executors *executors
	queries   *queries
}

// lead leads a call with a key to the replacement of the call that the key was reserved for, if
// a person has allowed one. It goes no further than the key has, which the caller's own trace has; ""
// if it has no trace.
func (s *stands) lead(ctx context.Context, req *BeginRequest, has string) error {
	for req.Key != "" && req.Key != has {
		record, err := req.record(ctx, s.store)
		if err != nil || record == nil {
			return err
		}
		row, err := s.store.Attachment(ctx, chain.AttachStream, keyspace.InsteadKey(record.TraceID))
		if err != nil {
			return err
		}
		if row == nil && req.Connection.Again != record.TraceID {
			return nil
		}
		// Check this first: the key of another request, or of another user, is a conflict even
		// if it stands for a replacement.
		if err := sameRequest(s.store, req.Key, req.proposal(), record); err != nil {
			return err
		}
		if err := sameSubject(ctx, s.store, req.Key, req.Connection.Subject, record); err != nil {
			return err
		}
		if row == nil {
			licensed, err := s.licenseAgain(ctx, req, record.TraceID)
			if err != nil || !licensed {
				return err
			}
		}
		req.Key = insteadKey(record.TraceID)
		req.own = mergeMeta(req.own, tga.Meta{tga.MetaAgainOf: record.TraceID.String()})
	}
	return nil
}

// leadNew is lead for a new trace, without a person who could say yes: a key that was settled as
// "did not run" is not sent besides the replacement that ran. A trace that exists already goes on
// with the key that it has, if that is the caller's or one that the caller's stands for.
func (s *stands) leadNew(ctx context.Context, req *Request, given bool) error {
	if req.Key == "" {
		return nil
	}
	record, err := req.record(ctx, s.store)
	if err != nil || record == nil {
		return err
	}
	if row, err := s.store.Attachment(ctx, chain.AttachStream, keyspace.InsteadKey(record.TraceID)); err != nil || row == nil {
		return err
	}
	has := ""
	if given {
		if t, err := s.store.Load(ctx, req.TraceID); err == nil && t.Request != nil {
			has = t.Request.Request.IdempotencyKey
		} else if !errors.Is(err, tga.NotFound) {
			return err
		}
	}
	b := BeginRequest{Request: *req}
	if b.Args, err = s.mint.canonicalArgs(req.Args); err != nil {
		return err
	}
	if err := s.lead(ctx, &b, has); err != nil {
		return err
	}
	req.Key, req.own = b.Key, b.own
	return nil
}

// record returns the ledger record of the request's key, and remembers a key that was never used.
// Such a key need not be looked up again: the append that reserves it compares.
func (req *Request) record(ctx context.Context, store Store) (*ledger.Record, error) {
	key := req.ledgerKey()
	if req.unused == key {
		return nil, nil
	}
	record, err := store.Record(ctx, key)
	if err == nil && record == nil {
		req.unused = key
	}
	return record, err
}

// proposal is what the request asks for, once its arguments are canonical: of a Begin see [beginIDs.own].
func (req *Request) proposal() tga.Proposal {
	return tga.Proposal{ToolServer: req.Server, ToolName: req.Tool, Args: req.Args}
}

func (req *Request) ledgerKey() ledger.Key {
	return ledger.Key{Namespace: firstOf(req.Namespace, tga.DefaultNamespace), Server: req.Server, Tool: req.Tool, Key: req.Key}
}

// licenseAgain records that the person at the client lets the call of a trace run again. It
// reports false if the call is no longer in doubt and parked.
func (s *stands) licenseAgain(ctx context.Context, req *BeginRequest, trace tga.ID) (bool, error) {
	l, err := s.traces.resume(ctx, trace)
	if err != nil {
		return false, err
	}
	defer s.store.Release(l.lease)
	// Read the record under the lease: nobody settles the trace between this and the append.
	record, err := s.store.Record(ctx, req.ledgerKey())
	if err != nil || record == nil || record.TraceID != trace || !record.InDoubt() || s.executors.alive(record, l.policy) || s.queries.licences.may(l.policy, l.claim(), l.attempted) {
		return false, err
	}
	row := chain.Attachment{Kind: chain.AttachStream, Key: keyspace.InsteadKey(trace), Value: []byte(insteadKey(trace))}
	return true, l.append(ctx, chain.Batch{Attachments: []chain.Attachment{row}})
}

// replaced reports whether another call runs instead of a trace's call. If the store cannot say it, the
// answer is yes, which permits nothing.
func replaced(store Store, trace tga.ID) bool {
	row, err := store.Attachment(context.Background(), chain.AttachStream, keyspace.InsteadKey(trace))
	return err != nil || row != nil
}
