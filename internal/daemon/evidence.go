package daemon

import (
	"context"
	"io"
	"sync"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// openEvidence opens the keeper of the evidence if the configuration has a key for it. It runs
// before the runtime is made, so that a store that was rolled back is frozen before anything is sent.
func (d *Daemon) openEvidence(o Options) error {
	if o.readOnly {
		d.resting = sync.OnceValues(func() (*evidence.Keeper, error) { return evidence.Read(d.life, d.can.proofs, o.Data, nil) })
		return nil
	}
	if d.can.proofs == nil {
		if o.Config.Evidence.Signs() {
			return tga.Errorf(tga.ValidationError, "[evidence]: a checkpoint is signed of the order of one store, and a fleet has several: set [store] namespace, in a daemon for each")
		}
		return nil
	}
	options, ok, err := assemble.Evidence(o.Config, o.Data, o.Logger)
	if err != nil {
		return err
	}
	if d.can.proving != nil {
		options.Logger = o.Logger
		d.keeper, err = d.can.proving.Keep(d.life, options)
		return err
	}
	if !ok {
		return nil
	}
	d.keeper, err = evidence.Open(d.life, d.can.proofs, o.Data, options)
	return err
}

// keepEvidence runs the keeper until stop is called. stop makes the last checkpoint.
func (d *Daemon) keepEvidence() (stop func() error) {
	if d.keeper == nil {
		return func() error { return nil }
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.keeper.Run(ctx)
	}()
	return func() error {
		end()
		<-ended
		return d.keeper.Close()
	}
}

// proving are the requests about proofs.
type proving struct{ *request }

// keeper returns the keeper of the evidence, up to date.
func (q proving) keeper() (*evidence.Keeper, error) {
	switch {
	case q.d.keeper.Signs():
		return q.d.keeper, q.d.keeper.Refresh(q.r.Context())
	case q.d.atRest:
		return q.d.resting() // it reads the whole log, so only a request for evidence opens it
	}
	return nil, tga.Errorf(tga.NotFound, "the store signs no checkpoints: its configuration has no [evidence] key_file")
}

// grew checks that the tree of the store is an extension of the tree that the client has seen, as
// its request's header says. It sets the same header of the answer to the current tree.
func (q *request) grew() error {
	k := q.d.keeper
	if !k.Signs() {
		return nil
	}
	if now := k.Seen(); now != "" {
		q.w.Header().Set(wire.HeaderCheckpoint, now)
	}
	text := q.r.Header.Get(wire.HeaderCheckpoint)
	if text == "" {
		return nil
	}
	s, err := evidence.ParseSeen(text)
	if err != nil {
		return err
	}
	if err := k.Check(q.r.Context(), s); err != nil {
		return err
	}
	if own, err := evidence.ParseSeen(k.Seen()); q.d.can.proving != nil && (err != nil || own.Size < s.Size) {
		q.w.Header().Set(wire.HeaderCheckpoint, text) // the client has seen more, from another process, and must not forget it
	}
	return nil
}

// receipt answers with the places of a trace's appends in the tree, and with their proofs.
func (q proving) receipt() (any, error) {
	k, err := q.keeper()
	if err != nil {
		return nil, err
	}
	t, err := q.traceInPath()
	if err != nil {
		return nil, err
	}
	r, err := k.Receipt(q.r.Context(), t.ID)
	if err != nil {
		return nil, err
	}
	return r.Plain(), nil
}

// wanted is the receipt of a call, if the request asks for receipts. The answer to the call does not depend on
// it, so if no receipt can be made, wanted logs that and returns nil.
func (q proving) wanted(trace tga.ID) *runtime.Receipt {
	if !q.d.keeper.Signs() || trace.IsZero() || q.r.Header.Get(wire.HeaderReceipt) == "" {
		return nil
	}
	r, err := q.d.keeper.Receipt(q.r.Context(), trace)
	if err != nil {
		if q.r.Context().Err() == nil {
			q.d.log.Warn("a call is answered without the receipt that was asked for", "trace", trace, "error", err)
		}
		return nil
	}
	plain := r.Plain()
	return &plain
}

// checkpoint answers with the newest signed checkpoint of the store.
func (q proving) checkpoint() (any, error) {
	k, err := q.keeper()
	if err != nil {
		return nil, err
	}
	raw, _ := k.Newest()
	if raw == nil {
		return nil, tga.Errorf(tga.NotFound, "no checkpoint was signed yet: the first comes when something was appended")
	}
	key, over := k.Keys()
	return wire.SignedCheckpoint{Key: key, HandOvers: texts(over), Checkpoint: string(raw)}, nil
}

// signedNote answers with the newest signed checkpoint as the bytes of its note.
func (q proving) signedNote() (any, error) {
	k, err := q.keeper()
	if err != nil {
		return nil, err
	}
	raw, _ := k.Newest()
	if raw == nil {
		return nil, tga.Errorf(tga.NotFound, "no checkpoint was signed yet: the first comes when something was appended")
	}
	q.w.Header().Set("Cache-Control", "no-cache")
	return exact{"text/plain; charset=utf-8", raw}, nil
}

// tile answers with a tile of the tree. Any peer may read tiles of digests: they reveal nothing about
// a trace that the peer does not know. A tile of leaves names every trace in it, so it takes a
// peer that sees all namespaces.
func (q proving) tile() (any, error) {
	k, err := q.keeper()
	if err != nil {
		return nil, err
	}
	tile, err := evidence.ParseTile(q.r.PathValue("level") + "/" + q.r.PathValue("number"))
	if err != nil {
		return nil, err
	}
	if tile.L == evidence.EntriesLevel {
		if !q.peer.all() {
			return nil, tga.Errorf(tga.PermissionDenied, "%s sees one namespace, and the leaves of the tree name every trace of the store", q.peer.name())
		}
		leave, err := q.takeFollower()
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	raw, err := k.Tile(q.r.Context(), tile)
	if err != nil {
		return nil, err
	}
	q.w.Header().Set("Cache-Control", "max-age=31536000, immutable")
	return exact{"application/octet-stream", raw}, nil
}

func texts(notes [][]byte) (out []string) {
	for _, raw := range notes {
		out = append(out, string(raw))
	}
	return out
}

// bundle answers with a file that proves what happened. Chosen traces must be ones that the peer
// sees. A bundle of all appends since a time or an index takes a peer that sees all namespaces.
func (q proving) bundle() (any, error) {
	var m wire.EvidenceRequest
	if err := q.decode(&m); err != nil {
		return nil, err
	}
	k, err := q.keeper()
	if err != nil {
		return nil, err
	}
	for _, id := range m.TraceIDs {
		if _, err := q.trace(id); err != nil {
			return nil, err
		}
	}
	byIndex := m.After != 0 || m.Most != 0
	switch {
	case len(m.TraceIDs) > 0 && m.Since != 0:
		return nil, tga.Errorf(tga.ValidationError, "an evidence file is of chosen traces, or of all since a time").At("/since")
	case byIndex && (len(m.TraceIDs) > 0 || m.Since != 0):
		return nil, tga.Errorf(tga.ValidationError, "an evidence file is of appends by their index, or of chosen traces, or of all since a time").At("/after")
	case m.After < 0:
		return nil, tga.Errorf(tga.ValidationError, "after %d: want the index of an append, or 0", m.After).At("/after")
	case m.Most < 0:
		return nil, tga.Errorf(tga.ValidationError, "most %d: want a number of appends, or 0 for all", m.Most).At("/most")
	case len(m.TraceIDs) == 0 && !q.peer.all():
		return nil, tga.Errorf(tga.PermissionDenied, "%s sees one namespace, and evidence of a time has every trace of the store", q.peer.name())
	}
	want := evidence.Wanted{Traces: m.TraceIDs, Since: m.Since, After: uint64(m.After), Most: uint64(m.Most)}
	if m.Old != "" {
		want.Old = []byte(m.Old)
	}
	leave, err := q.takeFollower()
	if err != nil {
		return nil, err
	}
	defer leave()
	x := &exporting{q: q.request}
	return nil, k.Export(q.r.Context(), x, want, func(_ io.Writer, ids []tga.ID) error { return x.named(ids) })
}
