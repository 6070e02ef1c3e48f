package daemon

import (
	"errors"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestEvidenceOfAnEarlierStore: a store of format 2 has evidence under its digest alone. Both routes
// to it still lead there.
func TestEvidenceOfAnEarlierStore(t *testing.T) {
	s := newShop(t)
	b := start(t, s.config(""))
	ctx := t.Context()
	res, err := b.client.Call(ctx, book("k"))
	if err != nil {
		t.Fatal(err)
	}
	confirmed, err := b.client.Call(ctx, replay("k"))
	if err != nil {
		t.Fatal(err)
	}
	digest := confirmed.Confirmation.EvidenceDigest
	want, err := b.client.Evidence(ctx, digest, res.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	b.stop()
	db, err := engine.Open(b.data, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := db.Attachment(ctx, chain.AttachBlob, keyspace.EvidenceKey(digest, res.TraceID)); err != nil || string(raw) != string(want) {
		t.Errorf("the evidence is not the trace's own: %s, %v", raw, err)
	}
	lease, err := db.Acquire(ctx, res.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Append(ctx, lease, chain.Batch{Attachments: []chain.Attachment{
		{Kind: chain.AttachBlob, Key: keyspace.EvidenceKey(digest, res.TraceID)}, {Kind: chain.AttachBlob, Key: keyspace.DigestKey(digest), Value: want},
	}})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	b.start()
	for _, trace := range []tga.ID{{}, res.TraceID} {
		if raw, err := b.client.Evidence(ctx, digest, trace); err != nil || string(raw) != string(want) {
			t.Errorf("trace %s: %s, %v", trace, raw, err)
		}
	}
}
