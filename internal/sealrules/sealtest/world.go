package sealtest

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

type world struct {
	*testing.T
	Harness
	make func(t *testing.T) Harness
	s    Store
}

// anew runs a part of a claim on a store of its own.
func (w *world) anew(name string, do func(*world)) {
	w.Run(name, func(t *testing.T) { do(&world{T: t, Harness: w.make(t), make: w.make}) })
}

var bg = context.Background()

// open opens the store anew.
func (w *world) open(ring chain.Keyring) {
	w.Helper()
	if w.s != nil {
		if err := w.s.Close(); err != nil {
			w.Fatal(err)
		}
	} else {
		w.Cleanup(func() {
			w.Check(w.s)
			if err := w.s.Close(); err != nil {
				w.Error(err)
			}
		})
	}
	var err error
	if w.s, err = w.Open(ring); err != nil {
		w.Fatal(err)
	}
}

func (w *world) want(what string, err error, code tga.Code) {
	w.Helper()
	if tga.CodeOf(err) != code {
		w.Errorf("%s: %v, want %q", what, err, code)
	}
}

// call is a call whose arguments, and whose answer of so many bytes, have the secret.
type call struct {
	*storetest.Builder
	subject string
	size    int
	begin   chain.Batch
	end     chain.Batch
}

func (w *world) call(namespace, subject string, size int) *call {
	b := storetest.New(w.T)
	b.Namespace, b.Proposal.Args = namespace, []byte(`{"secret":"`+Secret+`"}`)
	return w.minted(&call{Builder: b, subject: subject, size: size})
}

func (w *world) minted(c *call) *call {
	b := c.Builder
	meta := tga.Meta{}
	if b.Namespace != "" {
		meta[tga.MetaNamespace] = b.Namespace
	}
	if c.subject != "" {
		meta[tga.MetaSubject] = c.subject
	}
	b.Request = b.Mint(&tga.Artifact{Type: tga.RequestType, Meta: meta, Request: &tga.ActionRequest{
		AgentID: storetest.NewID(), RiskLevel: tga.RiskWrite, Intent: "charge the customer once",
		Resources: []tga.Resource{{Kind: "service", ID: "payments"}}, Proposal: b.Proposal, IdempotencyKey: b.Key,
	}})
	c.begin = storetest.Batch(b.Request, b.MintDecision(tga.Approve), b.MintCall(""))
	c.end = chain.Batch{Artifacts: []chain.NewArtifact{b.MintEffect(tga.StatusSuccess, "", bytes.Repeat([]byte(Secret+" "), 1+c.size/len(Secret)), tga.Meta{})}}
	return c
}

func (w *world) acquire(id tga.ID) chain.Lease {
	w.Helper()
	lease, err := w.s.Acquire(bg, id)
	if err != nil {
		w.Fatal(err)
	}
	return lease
}

func (w *world) append(lease chain.Lease, batches ...chain.Batch) {
	w.Helper()
	for _, b := range batches {
		if _, err := w.s.Append(bg, lease, b); err != nil {
			w.Fatal(err)
		}
	}
}

// run makes calls from their begin to their end.
func (w *world) run(calls ...*call) {
	w.Helper()
	for _, c := range calls {
		lease := w.acquire(c.TraceID)
		w.append(lease, c.begin, c.end)
		w.s.Release(lease)
	}
}

// evidence puts evidence of a trace, and a question about it, beside it.
func (w *world) evidence(c *call) {
	w.Helper()
	value := []byte("evidence of it: " + Secret)
	body, err := ledger.Confirmation{Checked: 1, EvidenceDigest: tga.Sum(value), Finding: ledger.Confirmed}.Body()
	if err != nil {
		w.Fatal(err)
	}
	lease := w.acquire(c.TraceID)
	w.append(lease, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteConfirmation, Who: "tgad", Body: body}}, Attachments: []chain.Attachment{
		{Kind: chain.AttachBlob, Key: keyspace.EvidenceKey(tga.Sum(value), c.TraceID), Value: value},
		{Kind: chain.AttachApproval, Key: keyspace.ApprovalKey(c.TraceID), Value: value},
	}})
	w.s.Release(lease)
}

// beside returns what lies beside a trace.
func (w *world) beside(c *call) (evidence, question []byte) {
	w.Helper()
	value := []byte("evidence of it: " + Secret)
	evidence, err := w.s.Attachment(bg, chain.AttachBlob, keyspace.EvidenceKey(tga.Sum(value), c.TraceID))
	if err != nil {
		w.Error(err)
	}
	question, err = w.s.Attachment(bg, chain.AttachApproval, keyspace.ApprovalKey(c.TraceID))
	if err != nil {
		w.Error(err)
	}
	return evidence, question
}

// whole fails the test unless a call is there with all that it carried.
func (w *world) whole(calls ...*call) {
	w.Helper()
	for _, c := range calls {
		tr, err := w.s.Load(bg, c.TraceID)
		if err != nil {
			w.Errorf("trace %s: %v", c.TraceID, err)
			continue
		}
		if tr.Request == nil || !bytes.Contains(tr.Request.Canonical, []byte(Secret)) || tr.Effect == nil || len(tr.Documents) != 1 || !bytes.Equal(tr.Documents[0].Data, c.end.Artifacts[0].Documents[0].Data) {
			w.Errorf("trace %s is %+v", c.TraceID, tr)
		}
		for e, err := range w.s.Entries(bg, c.TraceID, 0) {
			if err != nil || e.Artifact == nil || e.Key != tr.Key {
				w.Errorf("trace %s, entry %d under key %d of %d: %v", c.TraceID, e.Seq, e.Key, tr.Key, err)
			}
		}
	}
}

// erased fails the test unless a trace has all that proves it, and nothing that it carried.
func (w *world) erased(calls ...*call) {
	w.Helper()
	for _, c := range calls {
		tr, err := w.s.Load(bg, c.TraceID)
		if err != nil {
			w.Errorf("trace %s: %v", c.TraceID, err)
			continue
		}
		if tr.Request != nil || tr.Decision != nil || tr.Call != nil || tr.Effect != nil || tr.Documents != nil || tr.Head.State != tga.Completed {
			w.Errorf("trace %s is %+v", c.TraceID, tr)
		}
		for i, a := range []*tga.Artifact{c.Request, c.Decision, c.Call, c.Effect} {
			if tr.Entries[i].ArtifactDigest != a.Digest {
				w.Errorf("trace %s, entry %d: digest %s, was %s", c.TraceID, i+1, tr.Entries[i].ArtifactDigest, a.Digest)
			}
		}
		erasures := 0
		for _, n := range tr.Notes {
			if n.Kind == tga.NoteErased && n.Who == "operator" && strings.Contains(string(n.Body), "the customer asked for it") && strings.Contains(string(n.Body), `"entries":4`) {
				erasures++
			}
		}
		if erasures != 1 {
			w.Errorf("trace %s has %d notes of its erasure: %+v", c.TraceID, erasures, tr.Notes)
		}
		if evidence, question := w.beside(c); evidence != nil || question != nil {
			w.Errorf("trace %s: beside it %q, %q", c.TraceID, evidence, question)
		}
		noted := false
		for l, err := range w.s.Notes(bg, c.TraceID, 0) {
			noted = noted || err == nil && l.Kind == tga.NoteErased
		}
		if !noted {
			w.Errorf("trace %s: its notes have no erasure", c.TraceID)
		}
	}
}

func (w *world) erase(what chain.Erasure) chain.Erased {
	w.Helper()
	what.Who, what.Reason = "operator", "the customer asked for it"
	done, err := w.s.Erase(bg, what)
	if err != nil {
		w.Fatal(err)
	}
	return done
}

func (w *world) nowhere(texts ...string) {
	w.Helper()
	for _, text := range texts {
		if found := w.Has(text); len(found) > 0 {
			w.Errorf("%q stands in %v", text, found)
		}
	}
}

// lay writes to the journal of a turn and to a family of working states.
func (w *world) lay(stream, family tga.ID) {
	w.Helper()
	lease := w.acquire(stream)
	w.append(lease, chain.Batch{Attachments: []chain.Attachment{
		{Kind: chain.AttachStream, Key: keyspace.StreamKey(stream, 1), Value: []byte("first " + Secret)},
		{Kind: chain.AttachStream, Key: keyspace.StreamKey(stream, 2), Value: []byte("second " + Secret)},
	}})
	w.s.Release(lease)
	lease = w.acquire(family)
	node := nodeKey(family)
	w.append(lease, chain.Batch{Attachments: []chain.Attachment{
		{Kind: chain.AttachStream, Key: keyspace.StreamKey(family, 0), Value: []byte("head"), Owner: family},
		{Kind: chain.AttachStream, Key: keyspace.StateKey(family, 0, 1), Value: []byte("boundary " + Secret), Owner: family},
		{Kind: chain.AttachBlob, Key: node, Value: []byte("node " + Secret), Owner: family},
	}})
	w.s.Release(lease)
}

// laid fails the test unless what was written there is read, each with a text in it.
func (w *world) laid(stream, family tga.ID, text string) {
	w.Helper()
	node := nodeKey(family)
	for _, x := range []chain.Attachment{
		{Kind: chain.AttachStream, Key: keyspace.StreamKey(stream, 1)}, {Kind: chain.AttachStream, Key: keyspace.StreamKey(stream, 2)},
		{Kind: chain.AttachStream, Key: keyspace.StateKey(family, 0, 1)}, {Kind: chain.AttachBlob, Key: node},
	} {
		value, err := w.s.Attachment(bg, x.Kind, x.Key)
		if err != nil || !bytes.Contains(value, []byte(text)) {
			w.Errorf("%c %x: %q, %v", x.Kind, x.Key, value, err)
		}
	}
	n := 0
	for a, err := range w.s.Attachments(bg, chain.AttachStream, keyspace.StreamPrefix(stream)) {
		if n++; err != nil || !bytes.Contains(a.Value, []byte(text)) {
			w.Errorf("item %d: %q, %v", n, a.Value, err)
		}
	}
	if n != 2 {
		w.Errorf("%d items", n)
	}
}

// nodeKey is the owner's key of the node.
func nodeKey(family tga.ID) []byte {
	key := keyspace.NodeKey(family, tga.Sum([]byte("node")))
	return key[:]
}
