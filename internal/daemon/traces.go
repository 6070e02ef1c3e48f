package daemon

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// trace loads a trace that the peer may see. For a trace of another namespace it returns the same
// NOT_FOUND as for one that does not exist, so the peer does not learn that it exists.
func (q *request) trace(id tga.ID) (*chain.Trace, error) {
	t, err := q.d.db.Load(q.r.Context(), id)
	if tga.CodeOf(err) == tga.StateRecoveryFailed && !q.ownGenesis(id) {
		return nil, noTrace(id)
	}
	if err != nil {
		return nil, err
	}
	if !q.peer.sees(t.Namespace) {
		return nil, noTrace(id)
	}
	return t, nil
}

// mine says whether a trace is the peer's to see, as far as that is known of one that fails a check.
func mine(q *request, id tga.ID) (bool, error) {
	if q.peer.all() {
		return true, nil
	}
	_, err := q.trace(id)
	switch tga.CodeOf(err) {
	case tga.NotFound:
		return false, nil // of another namespace
	case tga.StateRecoveryFailed:
		return true, nil // trace has looked at ownGenesis
	}
	if errors.Is(err, chain.ErrKeyMissing) {
		err = tga.Errorf(tga.StoreUnavailable, "whose a trace is cannot be read: %w", chain.ErrKeyMissing) // its id may be foreign
	}
	return err == nil, err
}

// ownGenesis says whether the first entry of a trace that fails a check names a namespace that the
// peer sees. The damaged entry proves nothing, but there is nothing better to tell the namespace by.
func (q *request) ownGenesis(id tga.ID) bool {
	if q.peer.all() {
		return true
	}
	for e, err := range q.d.db.Entries(q.r.Context(), id, 0) {
		if err != nil || e.Artifact == nil || e.Type != tga.RequestType {
			return false
		}
		namespace := e.Artifact.Meta.String(tga.MetaNamespace)
		if namespace == "" {
			namespace = tga.DefaultNamespace
		}
		return q.peer.sees(namespace)
	}
	return false
}

// noTrace is the error for a trace that the peer may not see. Its words are those of the store
// for a trace that does not exist, so the peer cannot tell the two apart.
func noTrace(id tga.ID) error {
	return tga.Errorf(tga.NotFound, "trace %s has no entry", id).In(id)
}

func (q *request) traceInPath() (*chain.Trace, error) {
	id, err := q.traceID()
	if err != nil {
		return nil, err
	}
	return q.trace(id)
}

// classified is an open trace as recovery sees it.
func classified(c runtime.Classified) wire.OpenTrace {
	m := story.Listed(chain.Listing{OpenTrace: c.OpenTrace, Server: c.Server, Tool: c.Tool, Key: c.Key, ToolCallID: c.ToolCallID})
	m.Held, m.Window = c.Held, string(c.Window)
	if c.Record != nil {
		m.Attempts = c.Record.Attempts.Count
	}
	if c.Err != nil {
		p := problemOf(c.Err)
		m.Problem = &p
	}
	return m
}

// timeline is everything about one trace.
func (q *request) timeline() (any, error) {
	t, err := q.traceInPath()
	if err != nil {
		return nil, err
	}
	ctx := q.r.Context()
	res, err := q.d.rt.Result(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	m := wire.Timeline{
		TraceID: t.ID, PlanID: t.PlanID, Namespace: t.Namespace, Deadline: t.Deadline,
		Held: q.d.db.Holder(t.ID) == ledger.HolderAlive, Call: q.callOf(res),
		Entries: []wire.Entry{}, Notes: []json.RawMessage{},
	}
	for e, err := range q.d.db.Entries(ctx, t.ID, 0) {
		if err != nil {
			return nil, err
		}
		m.Entries = append(m.Entries, story.Said(&e))
	}
	for i := range t.Notes {
		m.Notes = append(m.Notes, t.Notes[i].AppendCanonical(nil))
	}
	raw, err := q.d.db.Attachment(ctx, chain.AttachApproval, t.ID[:])
	if err != nil {
		return nil, err
	}
	if raw != nil {
		var a runtime.Approval
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, tga.Errorf(tga.StateChecksumMismatch, "pending approval: %w", err).In(t.ID)
		}
		m.Approval = approvalOf(a)
	}
	return m, nil
}

func (q *request) state() (any, error) {
	t, err := q.traceInPath()
	if err != nil {
		return nil, err
	}
	if t.PlanID.IsZero() {
		return nil, tga.Errorf(tga.NotFound, "the state of trace %s names its plan, and the trace was erased", t.ID).In(t.ID)
	}
	s := t.State()
	return exact{"application/json", s.AppendCanonical(nil)}, nil
}

// document answers with the exact bytes of a stored document; the ETag is its digest.
func (q *request) document() (any, error) {
	t, err := q.traceInPath()
	if err != nil {
		return nil, err
	}
	pointer := q.r.URL.Query().Get("pointer")
	if !strings.HasPrefix(pointer, "/") {
		return nil, tga.Errorf(tga.ValidationError, "want ?pointer=, as %s", tga.PointerResult).At("/pointer")
	}
	for _, doc := range t.Documents {
		if doc.Pointer != pointer || doc.Erased {
			continue
		}
		return q.exactBytes(doc.Data, tga.Sum(doc.Data)), nil
	}
	return nil, tga.Errorf(tga.NotFound, "the effect of trace %s has no document %.80q at hand", t.ID, pointer).In(t.ID)
}

// exactBytes answers with bytes whose ETag is their digest, or with 304 if the client has them.
func (q *request) exactBytes(data []byte, digest tga.Digest) any {
	tag := `"` + digest.String() + `"`
	q.w.Header().Set("ETag", tag)
	if q.r.Header.Get("If-None-Match") == tag {
		q.status = http.StatusNotModified
		_ = bound(q.w) // if the connection fails, so does the write
		q.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return exact{"application/octet-stream", data}
}
