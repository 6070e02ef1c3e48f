package fuzz

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/gowebpki/jcs"

	vectors "github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

// golden returns the documents of the golden chain, as they are in the file.
func golden(f fuzzer) (artifacts, entries, notes, checkpoints, preimages [][]byte) {
	f.Helper()
	b, err := vectors.Vectors.ReadFile("tga/golden_chain.json")
	if err != nil {
		f.Fatal(err)
	}
	var file struct {
		Traces []struct {
			Artifacts, Entries, Notes []json.RawMessage
			Checkpoint                json.RawMessage
			Preimages                 []string `json:"entry_preimages"`
		}
	}
	if err := json.Unmarshal(b, &file); err != nil {
		f.Fatal(err)
	}
	canonical := func(raw []byte) []byte {
		out, err := jcs.Transform(raw)
		if err != nil {
			f.Fatal(err)
		}
		return out
	}
	for _, t := range file.Traces {
		for _, raw := range t.Artifacts {
			artifacts = append(artifacts, raw, canonical(raw))
		}
		for _, raw := range t.Entries {
			entries = append(entries, canonical(raw))
		}
		for _, raw := range t.Notes {
			notes = append(notes, canonical(raw))
		}
		for _, p := range t.Preimages {
			preimages = append(preimages, []byte(p))
		}
		checkpoints = append(checkpoints, canonical(t.Checkpoint))
	}
	return artifacts, entries, notes, checkpoints, preimages
}

func add(f fuzzer, seeds ...[]byte) {
	for _, s := range seeds {
		f.Add(s)
	}
	addTexts(f)
}

// mustBeOurs checks that a decoder's error is an *Error with one of its codes.
func mustBeOurs(t *testing.T, raw []byte, err error) {
	t.Helper()
	var e *tga.Error
	if !errors.As(err, &e) {
		t.Fatalf("%q: %v", raw, err)
	}
	switch e.Code {
	case tga.ValidationError, tga.LimitExceeded, tga.SchemaViolation, tga.StateChecksumMismatch, tga.MissingToolCallID, tga.IdempotencyKeyRequired:
	default:
		t.Fatalf("%q: refused with %v", raw, err)
	}
}

// redigest puts the right digest into a document, so that the decoder does not refuse a mutation for its
// digest.
func redigest(raw []byte, member string) []byte {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil || m[member] == nil {
		return raw
	}
	delete(m, member)
	without, err := json.Marshal(m)
	if err != nil {
		return raw
	}
	preimage, err := jcs.Transform(without)
	if err != nil {
		return raw
	}
	m[member] = json.RawMessage(`"` + tga.Sum(preimage).String() + `"`)
	whole, err := json.Marshal(m)
	if err != nil {
		return raw
	}
	return whole
}

// FuzzDecodeArtifact: a decoded artifact is canonical, and has the digest that jcs and SHA-256 give. It
// decodes again from the stored bytes. It can be minted again from its typed part, unless an empty optional
// member was written.
func FuzzDecodeArtifact(f *testing.F) { fuzzDecodeArtifact(f) }

func fuzzDecodeArtifact(f fuzzer) {
	artifacts, _, _, _, _ := golden(f)
	add(f, artifacts...)
	f.Fuzz(bounded(func(t *testing.T, raw []byte) {
		for _, raw := range [][]byte{raw, redigest(raw, "_digest")} {
			if _, err := tga.DecodeStoredArtifact(raw); err != nil {
				mustBeOurs(t, raw, err)
			}
			a, err := tga.DecodeArtifact(raw, tga.Limits{})
			if err != nil {
				mustBeOurs(t, raw, err)
				continue
			}
			want, err := jcs.Transform(raw)
			if err != nil || !bytes.Equal(want, a.Canonical) {
				t.Fatalf("%q: canonical %q, jcs %q (%v)", raw, a.Canonical, want, err)
			}
			stored, err := tga.DecodeStoredArtifact(a.Canonical)
			if err != nil || stored.Digest != a.Digest || stored.Type != a.Type || stored.ID != a.ID {
				t.Fatalf("%q: stored form: %v", a.Canonical, err)
			}
			minted := *stored
			minted.Canonical, minted.Digest = nil, tga.Digest{}
			if err := minted.Seal(); err != nil {
				t.Fatalf("%q: cannot be minted: %v", a.Canonical, err)
			}
			if again, err := tga.DecodeArtifact(minted.Canonical, tga.Limits{}); err != nil || again.Digest != minted.Digest {
				t.Fatalf("%q: minted %q: %v", a.Canonical, minted.Canonical, err)
			}
		}
	}))
}

// FuzzDecodeLogEntry: the encoding of a decoded entry equals the one that jcs makes, with null for each
// member that was left out.
func FuzzDecodeLogEntry(f *testing.F) { fuzzDecodeLogEntry(f) }

func fuzzDecodeLogEntry(f fuzzer) {
	_, entries, _, _, preimages := golden(f)
	add(f, append(entries, preimages...)...)
	f.Fuzz(bounded(func(t *testing.T, raw []byte) {
		if e, err := tga.DecodeEntryPreimage(raw); err != nil {
			mustBeOurs(t, raw, err)
		} else if again := e.AppendPreimage(nil); !bytes.Equal(again, raw) || e.Digest != tga.Sum(raw) {
			t.Fatalf("preimage %q encodes to %q", raw, again)
		}
		for _, raw := range [][]byte{raw, redigest(raw, "entry_digest")} {
			e, err := tga.DecodeLogEntry(raw)
			if err != nil {
				mustBeOurs(t, raw, err)
				continue
			}
			whole := e.AppendCanonical(nil)
			if want, err := jcs.Transform(raw); err != nil || (!bytes.Equal(want, whole) && bytes.Count(want, []byte(":")) == bytes.Count(whole, []byte(":"))) {
				t.Fatalf("%q: ours %q, jcs %q (%v)", raw, whole, want, err)
			}
			stored, err := tga.DecodeEntryPreimage(e.AppendPreimage(nil))
			if err != nil || *stored != *e {
				t.Fatalf("%q: stored form %+v (%v)", raw, stored, err)
			}
		}
	}))
}

// FuzzDecodeCheckpoint: the encoding of a decoded checkpoint equals the one that jcs makes.
func FuzzDecodeCheckpoint(f *testing.F) { fuzzDecodeCheckpoint(f) }

func fuzzDecodeCheckpoint(f fuzzer) {
	_, _, _, checkpoints, _ := golden(f)
	add(f, checkpoints...)
	f.Fuzz(bounded(func(t *testing.T, raw []byte) {
		c, err := tga.DecodeCheckpoint(raw)
		if err != nil {
			mustBeOurs(t, raw, err)
			return
		}
		whole := c.AppendCanonical(nil)
		if want, err := jcs.Transform(raw); err != nil || !bytes.Equal(want, whole) {
			t.Fatalf("%q: ours %q, jcs %q (%v)", raw, whole, want, err)
		}
	}))
}

// FuzzDecodeNote: the encoding of a decoded note equals the one that jcs makes.
func FuzzDecodeNote(f *testing.F) { fuzzDecodeNote(f) }

func fuzzDecodeNote(f fuzzer) {
	_, _, notes, _, _ := golden(f)
	add(f, notes...)
	f.Fuzz(bounded(func(t *testing.T, raw []byte) {
		if n, err := tga.DecodeNotePreimage(raw); err != nil {
			mustBeOurs(t, raw, err)
		} else if again := n.AppendPreimage(nil); !bytes.Equal(again, raw) {
			t.Fatalf("preimage %q encodes to %q", raw, again)
		}
		for _, raw := range [][]byte{raw, redigest(raw, "note_digest")} {
			n, err := tga.DecodeNote(raw)
			if err != nil {
				mustBeOurs(t, raw, err)
				continue
			}
			whole := n.AppendCanonical(nil)
			if want, err := jcs.Transform(raw); err != nil || !bytes.Equal(want, whole) {
				t.Fatalf("%q: ours %q, jcs %q (%v)", raw, whole, want, err)
			}
			if _, err := tga.DecodeNotePreimage(n.AppendPreimage(nil)); err != nil {
				t.Fatalf("%q: stored form: %v", raw, err)
			}
		}
	}))
}

// FuzzEncodersAgreeWithJCS mints artifacts from arbitrary strings and numbers. The encoders write the same
// bytes as jcs does from the members that encoding/json wrote.
func FuzzEncodersAgreeWithJCS(f *testing.F) { fuzzEncodersAgreeWithJCS(f) }

func fuzzEncodersAgreeWithJCS(f fuzzer) {
	f.Add("key", "runtime", uint64(1), uint32(1), int64(0), "intent of ten", "name", "value")
	f.Add("\x00\x1f\"\\/\b\f\n\r\t\u007f\u2028<>&", "\U0001f600\ufb33", uint64(1<<53-1), uint32(1<<32-1), int64(253402300799999), "\t\t\t\t\t\t\t\t\t\t", "\ufb33", "\U0001f600")
	f.Fuzz(func(t *testing.T, key, who string, seq uint64, number uint32, ts int64, intent, name, value string) {
		const mostTS = 253402300799999 // the end of the year 9999
		seq, ts = seq&tga.MaxSafeInteger, ((ts%mostTS)+mostTS)%mostTS
		id, err := tga.ParseID("01936a8b-4c2d-7000-8000-000000000001")
		if err != nil {
			t.Fatal(err)
		}
		e := tga.LogEntry{TraceID: id, Seq: max(seq, 1), TS: tga.Millis(ts), From: tga.Pending, To: tga.Pending, Type: tga.RequestType, ArtifactID: id, IdempotencyKey: key}
		e.Seal()
		n := tga.Note{TraceID: id, Number: max(number, 1), TS: tga.Millis(ts), Kind: tga.NoteAttempt, Who: who}
		n.Seal()
		agree(t, e.AppendCanonical(nil), "idempotency_key", key)
		agree(t, n.AppendCanonical(nil), "who", who)

		a := tga.Artifact{Type: tga.RequestType, ID: id, TraceID: id, PlanID: id, TS: tga.Millis(ts), Meta: tga.Meta{name: value, "fixed": tga.Number("1")},
			Request: &tga.ActionRequest{AgentID: id, RiskLevel: tga.RiskRead, Intent: intent, Resources: []tga.Resource{{Kind: "db", ID: value}},
				Proposal: tga.Proposal{ToolServer: "s", ToolName: "t", Args: []byte("{}")}, IdempotencyKey: key}}
		if err := a.Seal(); err != nil {
			mustBeOurs(t, []byte(intent), err)
			return
		}
		agree(t, a.Canonical, "intent", intent)
	})
}

// agree checks that canonical equals its own canonical form by jcs, and that the value of member is s.
func agree(t *testing.T, canonical []byte, member, s string) {
	t.Helper()
	want, err := jcs.Transform(canonical)
	if err != nil {
		return // s is not valid UTF-8
	}
	if !bytes.Equal(want, canonical) {
		t.Fatalf("ours %q, jcs %q", canonical, want)
	}
	var m map[string]any
	if err := json.Unmarshal(canonical, &m); err != nil {
		t.Fatalf("%q: %v", canonical, err)
	}
	if got, _ := m[member].(string); got != s {
		t.Fatalf("%s is %q in %q, want %q", member, got, canonical, s)
	}
}
