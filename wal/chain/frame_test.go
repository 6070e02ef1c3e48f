package chain_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// chunks returns a readSpill that serves spill and counts its calls.
func chunks(t *testing.T, spill []byte, calls *int) func(int64) ([]byte, error) {
	return func(size int64) ([]byte, error) {
		*calls++
		if size != int64(len(spill)) {
			t.Errorf("decode asks for %d spilled bytes, there are %d", size, len(spill))
		}
		return spill, nil
	}
}

func document(pointer string, n int) chain.Document {
	return chain.Document{Pointer: pointer, Data: bytes.Repeat([]byte("x"), n)}
}

var manyShapes = map[string]chaintest.Options{
	"plain":            {Seed: 1},
	"failed":           {Seed: 2, Status: tga.StatusFailure},
	"denied":           {Seed: 3, Verdict: tga.Deny},
	"key and token":    {Seed: 4, Key: "order-17/ü", Token: "aGVhZA.Ym9keQ.c2ln"},
	"inline result":    {Seed: 5, Documents: []chain.Document{document("/result", chain.MaxInline)}},
	"spilled result":   {Seed: 6, Documents: []chain.Document{document("/result", chain.MaxInline+1)}},
	"empty result":     {Seed: 7, Documents: []chain.Document{document("/result", 0)}},
	"three, two spill": {Seed: 8, Documents: []chain.Document{document("/result", 70<<10), document("/state_changes", 5), document("/evidence", 40<<10)}},
	"spilled artifact": {Seed: 9, Args: `{"a":"` + string(bytes.Repeat([]byte("y"), chain.MaxInline)) + `"}`},
}

func TestFrameRoundTrip(t *testing.T) {
	for name, o := range manyShapes {
		t.Run(name, func(t *testing.T) {
			for _, e := range chaintest.New(o).Entries {
				for _, e := range []chain.Entry{e, chaintest.Erase(e)} {
					prefix := []byte("before")
					frame, spill := chain.AppendFrame(prefix, &e)
					if !bytes.HasPrefix(frame, prefix) {
						t.Fatal("AppendFrame does not append")
					}
					frame = frame[len(prefix):]
					var calls int
					got, err := chain.DecodeFrame(frame, chunks(t, spill, &calls))
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(e, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(chain.Entry{})); diff != "" {
						t.Fatalf("entry %d (-want +got):\n%s", e.Seq, diff)
					}
					if want := min(len(spill), 1); calls != want {
						t.Errorf("chunks read %d times, want %d", calls, want)
					}
					again, _ := chain.AppendFrame(nil, &got)
					if !bytes.Equal(again, frame) {
						t.Error("a decoded entry has another frame")
					}
				}
			}
		})
	}
}

// TestPartsOverInlineSpill asks at the limit and one past it.
func TestPartsOverInlineSpill(t *testing.T) {
	for size, want := range map[int]int{chain.MaxInline: 0, chain.MaxInline + 1: chain.MaxInline + 1} {
		tr := chaintest.New(chaintest.Options{Documents: []chain.Document{document("/result", size)}})
		if _, spill := chain.AppendFrame(nil, &tr.Entries[3]); len(spill) != want {
			t.Errorf("a document of %d bytes spills %d, want %d", size, len(spill), want)
		}
	}
}

// TestEveryFlippedFrameBitIsRefused flips each bit of a frame. Digests cover everything except
// commit time and epoch.
func TestEveryFlippedFrameBitIsRefused(t *testing.T) {
	tr := chaintest.New(chaintest.Options{Key: "k", Documents: []chain.Document{document("/result", 10), document("/evidence", 3)}})
	for _, e := range tr.Entries {
		frame, _ := chain.AppendFrame(nil, &e)
		for i := range frame {
			for bit := range 8 {
				bad := bytes.Clone(frame)
				bad[i] ^= 1 << bit
				_, err := chain.DecodeFrame(bad, nil)
				if unhashed := 32 <= i && i < 48; (err == nil) != unhashed {
					t.Fatalf("entry %d, bit %d of byte %d flipped: %v", e.Seq, bit, i, err)
				}
				if err == nil {
					continue
				}
				if code := tga.CodeOf(err); code != tga.StateChecksumMismatch && code != tga.FormatTooNew {
					t.Fatalf("entry %d, bit %d of byte %d flipped: %v", e.Seq, bit, i, err)
				}
			}
		}
		for n := range frame {
			if _, err := chain.DecodeFrame(frame[:n], nil); tga.CodeOf(err) != tga.StateChecksumMismatch {
				t.Fatalf("entry %d cut to %d bytes: %v", e.Seq, n, err)
			}
		}
		if _, err := chain.DecodeFrame(append(bytes.Clone(frame), 0), nil); tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Fatalf("entry %d with a byte more: %v", e.Seq, err)
		}
	}
}

func TestSpillIsChecked(t *testing.T) {
	tr := chaintest.New(chaintest.Options{Documents: []chain.Document{document("/result", 40<<10)}})
	frame, spill := chain.AppendFrame(nil, &tr.Entries[3])
	flipped := bytes.Clone(spill)
	flipped[20<<10] ^= 1
	cause := errors.New("disk")
	for name, c := range map[string]struct {
		read func(int64) ([]byte, error)
		want error
	}{
		"no reader": {nil, tga.StateChecksumMismatch},
		"short":     {func(int64) ([]byte, error) { return spill[1:], nil }, tga.StateChecksumMismatch},
		"long":      {func(int64) ([]byte, error) { return append(bytes.Clone(spill), 0), nil }, tga.StateChecksumMismatch},
		"flipped":   {func(int64) ([]byte, error) { return flipped, nil }, tga.StateChecksumMismatch},
		"failing":   {func(int64) ([]byte, error) { return nil, cause }, cause},
	} {
		if _, err := chain.DecodeFrame(frame, c.read); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// rewrite returns the frame of e with a byte set.
func rewrite(e *chain.Entry, at int, b byte) []byte {
	frame, _ := chain.AppendFrame(nil, e)
	frame[at] = b
	return frame
}

func TestFrameFaultsHaveTheirCode(t *testing.T) {
	tr := chaintest.New(chaintest.Options{Documents: []chain.Document{document("/result", 10)}})
	e := &tr.Entries[3]
	artifactPart := 192 + len(e.IdempotencyKey)
	longer := append(rewrite(e, 0, 'E'), 0)
	binary.BigEndian.PutUint32(longer[116:], uint32(len(longer)))
	for name, c := range map[string]struct {
		frame []byte
		want  tga.Code
	}{
		"magic":                {rewrite(e, 0, 'F'), tga.StateChecksumMismatch},
		"version 0":            {rewrite(e, 1, 0), tga.StateChecksumMismatch},
		"sealed, and plain":    {rewrite(e, 1, 2), tga.StateChecksumMismatch},
		"version 3":            {rewrite(e, 1, 3), tga.FormatTooNew},
		"unknown flag":         {rewrite(e, 3, 1<<3|1<<2), tga.StateChecksumMismatch},
		"unknown high flag":    {rewrite(e, 2, 0x80), tga.StateChecksumMismatch},
		"flag without cause":   {rewrite(e, 3, 1<<2|1), tga.StateChecksumMismatch},
		"byte after the parts": {longer, tga.StateChecksumMismatch},
		"no part":              {rewrite(e, 7, 0), tga.StateChecksumMismatch},
		"sealed part":          {rewrite(e, artifactPart, 1), tga.FormatTooNew},
		"unknown encoding":     {rewrite(e, artifactPart, 3), tga.StateChecksumMismatch},
		"unknown place":        {rewrite(e, artifactPart+1, 2), tga.StateChecksumMismatch},
	} {
		_, err := chain.DecodeFrame(c.frame, nil)
		var te *tga.Error
		if !errors.As(err, &te) || te.Code != c.want || te.Where != "stored" {
			t.Errorf("%s: %v, want %s, stored", name, err, c.want)
		}
	}
}

// TestFrameErrorNamesBothDigests: the error has both digests, which an operator needs to search.
func TestFrameErrorNamesBothDigests(t *testing.T) {
	tr := chaintest.New(chaintest.Options{Documents: []chain.Document{document("/result", 10)}})
	e := tr.Entries[3]
	frame, _ := chain.AppendFrame(nil, &e)
	frame[len(frame)-1] ^= 1
	_, err := chain.DecodeFrame(frame, nil)
	var te *tga.Error
	if !errors.As(err, &te) {
		t.Fatal(err)
	}
	if te.TraceID != tr.ID || te.Seq != 4 || te.WantDigest != e.Artifact.Effect.DocumentHashes[0].Hash ||
		te.GotDigest == te.WantDigest || te.GotDigest.IsZero() || te.Pointer != "/result" {
		t.Errorf("error %+v", te)
	}
	other := tr.Entries[0]
	other.ArtifactDigest = tga.Sum([]byte("other"))
	other.Seal()
	other.Preimage = nil
	frame, _ = chain.AppendFrame(nil, &other)
	_, err = chain.DecodeFrame(frame, nil)
	if !errors.As(err, &te) || te.Code != tga.StateChecksumMismatch || te.Seq != 1 || te.WantDigest != other.ArtifactDigest ||
		te.GotDigest != tr.Entries[0].ArtifactDigest {
		t.Errorf("artifact of another digest: %+v", te)
	}
}

// TestHeaderAndEntryMustAgree plants each header field's disagreement with an entry
// whose digest is right.
func TestHeaderAndEntryMustAgree(t *testing.T) {
	tr := chaintest.New(chaintest.Options{})
	e := &tr.Entries[2]
	frame, _ := chain.AppendFrame(nil, e)
	for name, at := range map[string]int{"from": 4, "to": 5, "type": 6, "seq": 15, "trace": 31, "prev": 79} {
		bad := bytes.Clone(frame)
		bad[at] ^= 1
		if _, err := chain.DecodeFrame(bad, nil); tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("header's %s differs from the entry: %v", name, err)
		}
	}
}

func TestNoteFrameRoundTrip(t *testing.T) {
	tr := chaintest.New(chaintest.Options{Notes: 2})
	for _, n := range tr.Notes {
		frame := chain.AppendNoteFrame([]byte("before"), &n, 77, 9)[6:]
		got, committed, epoch, err := chain.DecodeNoteFrame(frame)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(n, got); diff != "" || committed != 77 || epoch != 9 {
			t.Fatalf("committed %d, epoch %d, note (-want +got):\n%s", committed, epoch, diff)
		}
		for i := range frame {
			bad := bytes.Clone(frame)
			bad[i] ^= 1
			_, _, _, err := chain.DecodeNoteFrame(bad)
			if unhashed := 8 <= i && i < 24; (err == nil) != unhashed {
				t.Fatalf("note %d, byte %d flipped: %v", n.Number, i, err)
			}
			if code := tga.CodeOf(err); err != nil && code != tga.StateChecksumMismatch {
				t.Fatalf("note %d, byte %d flipped: %v", n.Number, i, err)
			}
			if _, _, _, err := chain.DecodeNoteFrame(frame[:i]); tga.CodeOf(err) != tga.StateChecksumMismatch {
				t.Fatalf("note %d cut to %d bytes: %v", n.Number, i, err)
			}
		}
		newer := bytes.Clone(frame)
		newer[1] = 2
		if _, _, _, err := chain.DecodeNoteFrame(newer); tga.CodeOf(err) != tga.FormatTooNew {
			t.Errorf("note frame of version 2: %v", err)
		}
	}
}

// TestFrameOfNoEntryIsNamed: if the fields make no valid entry, the error is a wrong digest, unless
// the header has exactly the digest of these fields. Then the error is about the fields.
func TestFrameOfNoEntryIsNamed(t *testing.T) {
	e := chaintest.New(chaintest.Options{}).Entries[0]
	for name, broken := range map[string]struct {
		at   int
		make func(*tga.LogEntry)
	}{
		"type":     {6, func(e *tga.LogEntry) { e.Type = 77 }},
		"state":    {5, func(e *tga.LogEntry) { e.To = 77 }},
		"sequence": {8, func(e *tga.LogEntry) { e.Seq |= 77 << 56 }},
		"time":     {184, func(e *tga.LogEntry) { e.TS |= 77 << 56 }},
	} {
		frame, _ := chain.AppendFrame(nil, &e)
		frame[broken.at] = 77
		other := e.LogEntry
		broken.make(&other)
		sum := tga.Sum(other.AppendPreimage(nil))
		var te *tga.Error
		if _, err := chain.DecodeFrame(frame, nil); !errors.As(err, &te) || te.WantDigest != sum || te.GotDigest != e.Digest {
			t.Errorf("%s: %+v", name, te)
		}
		copy(frame[80:], sum[:])
		te = nil
		if _, err := chain.DecodeFrame(frame, nil); !errors.As(err, &te) || te.Code != tga.StateChecksumMismatch || !te.WantDigest.IsZero() {
			t.Errorf("%s: %+v", name, te)
		}
	}
}
