package chain_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// decoded returns the entries of a trace as a store reads them.
func decoded(t *testing.T, tr *chaintest.Trace) []chain.Entry {
	t.Helper()
	var out []chain.Entry
	for i := range tr.Entries {
		frame, spill := chain.AppendFrame(nil, &tr.Entries[i])
		e, err := chain.DecodeFrame(frame, func(int64) ([]byte, error) { return spill, nil })
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// TestChangedAfterDecodeIsRefused changes a decoded entry in every way but in the bytes
// behind its slices: what DecodeFrame proved of it no longer holds, and Replay must not
// believe that it does.
func TestChangedAfterDecodeIsRefused(t *testing.T) {
	tr := chaintest.New(full)
	flip := func(b []byte) []byte {
		b = bytes.Clone(b)
		b[len(b)/2] ^= 1
		return b
	}
	last := func(change func(e *chain.Entry)) func([]chain.Entry) {
		return func(all []chain.Entry) { change(&all[len(all)-1]) }
	}
	artifact := func(change func(a *tga.Artifact)) func([]chain.Entry) {
		return last(func(e *chain.Entry) {
			a := *e.Artifact
			change(&a)
			e.Artifact = &a
		})
	}
	for name, change := range map[string]func([]chain.Entry){
		"ts":                  last(func(e *chain.Entry) { e.TS++ }),
		"key":                 last(func(e *chain.Entry) { e.IdempotencyKey += "x" }),
		"entry digest":        last(func(e *chain.Entry) { e.Digest[0] ^= 1 }),
		"artifact digest":     last(func(e *chain.Entry) { e.ArtifactDigest[0] ^= 1 }),
		"preimage":            last(func(e *chain.Entry) { e.Preimage = flip(e.Preimage) }),
		"canonical, copied":   artifact(func(a *tga.Artifact) { a.Canonical = flip(a.Canonical) }),
		"canonical, in place": last(func(e *chain.Entry) { e.Artifact.Canonical = flip(e.Artifact.Canonical) }),
		"own digest":          last(func(e *chain.Entry) { e.Artifact.Digest[0] ^= 1 }),
		"document":            last(func(e *chain.Entry) { e.Documents[0].Data = flip(e.Documents[0].Data) }),
		"document's pointer":  last(func(e *chain.Entry) { e.Documents[0].Pointer = tga.PointerEvidence }),
		"no document":         last(func(e *chain.Entry) { e.Documents = nil }),
	} {
		t.Run(name, func(t *testing.T) {
			all := decoded(t, tr)
			if _, err := chain.Replay(tr.ID, chaintest.Seq2(slices.Clone(all)), nil); err != nil {
				t.Fatal(err)
			}
			change(all)
			if _, err := chain.Replay(tr.ID, chaintest.Seq2(all), nil); tga.CodeOf(err) == "" {
				t.Errorf("replay believes it: %v", err)
			}
		})
	}
}

// TestDecodedEntryIsCheckedAgainstItsTrace: an entry that is consistent in itself may be at a wrong
// place. Each entry here is sealed and framed, so that DecodeFrame accepts it.
func TestDecodedEntryIsCheckedAgainstItsTrace(t *testing.T) {
	tr := chaintest.New(full)
	sealed := func(change func(e *chain.Entry)) chain.Entry {
		e := tr.Entries[1]
		e.Preimage = nil
		change(&e)
		e.Seal()
		frame, _ := chain.AppendFrame(nil, &e)
		got, err := chain.DecodeFrame(frame, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := decoded(t, tr)[0]
	for name, c := range map[string]struct {
		second chain.Entry
		code   tga.Code
	}{
		"sequence": {sealed(func(e *chain.Entry) { e.Seq = 3 }), tga.StateSequenceGap},
		"prev":     {sealed(func(e *chain.Entry) { e.Prev[0] ^= 1 }), tga.StateChecksumMismatch},
		"machine":  {sealed(func(e *chain.Entry) { e.From = tga.Authorized }), tga.StateInvalidTransition},
		"members":  {sealed(func(e *chain.Entry) { e.TraceID[15] ^= 1 }), tga.SchemaViolation},
		"links": {sealed(func(e *chain.Entry) {
			a, d := *e.Artifact, *e.Artifact.Decision
			d.RequestDigest[0] ^= 1
			a.Decision = &d
			if err := a.Seal(); err != nil {
				t.Fatal(err)
			}
			e.Artifact, e.ArtifactDigest = &a, a.Digest
		}), tga.StateChecksumMismatch},
		"none": {sealed(func(*chain.Entry) {}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := chain.Replay(tr.ID, chaintest.Seq2([]chain.Entry{first, c.second}), nil)
			if code := tga.CodeOf(err); code != c.code {
				t.Errorf("replay: %v, want %q", err, c.code)
			}
		})
	}
}
