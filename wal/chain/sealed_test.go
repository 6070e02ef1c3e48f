package chain_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// sealedTrace is a trace whose entries have a key.
func sealedTrace(o chaintest.Options, key chain.KeyID) *chaintest.Trace {
	tr := chaintest.New(o)
	for i := range tr.Entries {
		tr.Entries[i].Key = key
	}
	return tr
}

func sealFrame(t *testing.T, e *chain.Entry, keys chain.Keys) (frame, spill []byte) {
	t.Helper()
	frame, spill, err := chain.AppendSealedFrame(nil, e, keys)
	if err != nil {
		t.Fatal(err)
	}
	return frame, spill
}

func spillOf(spill []byte) func(int64) ([]byte, error) {
	return func(int64) ([]byte, error) { return spill, nil }
}

// TestSealedFrameRoundTrip: sealed content is read back under its key, and does not occur in the
// frame or in the spill.
func TestSealedFrameRoundTrip(t *testing.T) {
	ring := &chaintest.Ring{}
	for _, size := range []int{0, 1, chain.MaxInline - 36, chain.MaxInline - 35, chain.MaxInline + 1, 70 << 10} {
		tr := sealedTrace(chaintest.Options{Key: "order-1", Args: `{"secret":"nobody reads this"}`,
			Documents: []chain.Document{document("/result", size), {Pointer: "/evidence", Data: []byte("seen")}}}, 5)
		tr.Entries[3].Documents[1] = chain.Document{Pointer: "/evidence", Erased: true}
		for _, e := range tr.Entries {
			frame, spill := sealFrame(t, &e, ring)
			if frame[1] != tga.SealedFrameVersion {
				t.Fatalf("frame of version %d", frame[1])
			}
			if e.Seq == 4 && (len(spill) > 0) != (size+36 > chain.MaxInline) {
				t.Errorf("a document of %d bytes: %d are spilled", size, len(spill))
			}
			for _, b := range [][]byte{frame, spill} {
				if bytes.Contains(b, []byte("nobody reads this")) || bytes.Contains(b, []byte(`"proposal"`)) {
					t.Errorf("entry %d: its content can be read", e.Seq)
				}
			}
			got, err := chain.DecodeSealedFrame(frame, ring, spillOf(spill))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(e, got, cmpopts.IgnoreUnexported(chain.Entry{}), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("entry %d (-want +got):\n%s", e.Seq, diff)
			}
			if again, spilled := sealFrame(t, &got, ring); !bytes.Equal(again, frame) || !bytes.Equal(spilled, spill) {
				t.Errorf("entry %d has two frames", e.Seq)
			}
		}
	}
}

// TestPlainFrameOfAKeyedEntry: without anything to seal, and for an entry without a key, the
// frame is that of version 1, byte for byte.
func TestPlainFrameOfAKeyedEntry(t *testing.T) {
	tr := chaintest.New(chaintest.Options{Documents: []chain.Document{document("/result", 10)}})
	erased := chaintest.Erase(tr.Entries[3])
	keyed := erased
	keyed.Key = 5
	for _, e := range []chain.Entry{tr.Entries[3], erased, keyed} {
		want, _ := chain.AppendFrame(nil, &e)
		if got, _ := sealFrame(t, &e, nil); !bytes.Equal(got, want) || got[1] != tga.EntryFrameVersion {
			t.Errorf("frame of version %d", got[1])
		}
	}
}

// TestDestroyedKeyErases: the entry is one whose parts were erased, and its trace replays.
func TestDestroyedKeyErases(t *testing.T) {
	tr := sealedTrace(chaintest.Options{Documents: []chain.Document{document("/result", 40<<10)}}, 5)
	var entries []chain.Entry
	for _, e := range tr.Entries {
		frame, spill := sealFrame(t, &e, &chaintest.Ring{})
		got, err := chain.DecodeSealedFrame(frame, &chaintest.Ring{Destroyed: map[chain.KeyID]bool{5: true}}, spillOf(spill))
		if err != nil {
			t.Fatal(err)
		}
		want := chaintest.Erase(e)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(chain.Entry{})); diff != "" {
			t.Errorf("entry %d (-want +got):\n%s", e.Seq, diff)
		}
		entries = append(entries, got)
	}
	folded, err := chain.Replay(tr.ID, chaintest.Seq2(entries), nil)
	if err != nil {
		t.Fatal(err)
	}
	if folded.Head != tr.State.Head || folded.Key != 5 || folded.Request != nil || folded.Effect != nil || folded.Documents != nil {
		t.Errorf("it folds to %+v", folded)
	}
}

// TestKeyThatCannotBeHad: without the ring or the key, the error does not say that bytes are damaged.
func TestKeyThatCannotBeHad(t *testing.T) {
	tr := sealedTrace(chaintest.Options{}, 5)
	frame, _ := sealFrame(t, &tr.Entries[0], &chaintest.Ring{})
	down := errors.New("the ring is down")
	for name, keys := range map[string]chain.Keys{"no ring": nil, "no key": &chaintest.Ring{Err: down}} {
		_, err := chain.DecodeSealedFrame(frame, keys, nil)
		var te *tga.Error
		if !errors.As(err, &te) || te.Code != tga.StoreUnavailable || te.TraceID != tr.ID || te.Seq != 1 || te.Where != "" {
			t.Errorf("%s, read: %+v", name, err)
		}
		_, _, err = chain.AppendSealedFrame(nil, &tr.Entries[0], keys)
		if tga.CodeOf(err) != tga.StoreUnavailable || keys != nil && !errors.Is(err, down) {
			t.Errorf("%s, written: %v", name, err)
		}
	}
}

// TestEveryFlippedBitOfASealedFrameIsRefused: all but commit time and epoch, and the key's id,
// is under a digest or a tag; under another key nothing opens.
// clumsyRing seals a number of bytes that no ring may.
type clumsyRing struct {
	*chaintest.Ring
	change func([]byte) []byte
}

func (r clumsyRing) Seal(dst []byte, key chain.KeyID, plain, aad []byte) ([]byte, error) {
	out, err := r.Ring.Seal(dst, key, plain, aad)
	return r.change(out), err
}

// TestRingThatSealsAnotherLengthIsRefused: the frame would say where parts begin that they do not begin.
func TestRingThatSealsAnotherLengthIsRefused(t *testing.T) {
	tr := sealedTrace(chaintest.Options{}, 5)
	whole := len(tr.Entries[0].Artifact.Canonical) + chain.SealOverhead
	for other, change := range map[int]func([]byte) []byte{
		whole + 1: func(b []byte) []byte { return append(b, 0) },
		whole - 1: func(b []byte) []byte { return b[:len(b)-1] },
	} {
		_, _, err := chain.AppendSealedFrame(nil, &tr.Entries[0], clumsyRing{new(chaintest.Ring), change})
		if !errors.Is(err, tga.StoreUnavailable) || !errors.Is(err, tga.GenericStateError) || !strings.Contains(err.Error(), fmt.Sprintf("sealed %d bytes as %d", whole-chain.SealOverhead, other)) {
			t.Errorf("%d bytes: %v", other, err)
		}
	}
}

func TestEveryFlippedBitOfASealedFrameIsRefused(t *testing.T) {
	tr := sealedTrace(chaintest.Options{Key: "k", Documents: []chain.Document{document("/result", 10), document("/evidence", 3)}}, 5)
	ring := &chaintest.Ring{}
	for _, e := range tr.Entries {
		frame, _ := sealFrame(t, &e, ring)
		for i := range frame {
			for bit := range 8 {
				bad := bytes.Clone(frame)
				bad[i] ^= 1 << bit
				_, err := chain.DecodeSealedFrame(bad, ring, nil)
				if unhashed := 32 <= i && i < 48; (err == nil) != unhashed {
					t.Fatalf("entry %d, bit %d of byte %d flipped: %v", e.Seq, bit, i, err)
				}
				if code := tga.CodeOf(err); err != nil && code != tga.StateChecksumMismatch && code != tga.FormatTooNew {
					t.Fatalf("entry %d, bit %d of byte %d flipped: %v", e.Seq, bit, i, err)
				}
			}
		}
		for n := range frame {
			if _, err := chain.DecodeSealedFrame(frame[:n], ring, nil); tga.CodeOf(err) != tga.StateChecksumMismatch {
				t.Fatalf("entry %d cut to %d bytes: %v", e.Seq, n, err)
			}
		}
	}
}

// TestSealedPartOpensAtItsPlaceAlone: a part that was moved from another place of the log does not
// open, even if it was sealed under the same key.
func TestSealedPartOpensAtItsPlaceAlone(t *testing.T) {
	docs := []chain.Document{document("/result", 10), document("/state_changes", 10)}
	tr := sealedTrace(chaintest.Options{Seed: 1, Key: "k", Documents: docs}, 5)
	other := sealedTrace(chaintest.Options{Seed: 2, Key: "k", Documents: docs}, 5)
	ring := &chaintest.Ring{}
	frame, _ := sealFrame(t, &tr.Entries[3], ring)
	from, _ := sealFrame(t, &other.Entries[3], ring)
	if len(from) != len(frame) {
		t.Fatalf("frames of %d and %d bytes", len(frame), len(from))
	}
	at := 192 + len("k") + 12 // of the artifact's sealed bytes
	length := int(binary.BigEndian.Uint64(frame[at-8:]))
	first := at + length + 12 + len("/result")
	second := first + 46 + 12 + len("/state_changes")
	for name, c := range map[string][]byte{
		"another trace":    append(append(bytes.Clone(frame[:at]), from[at:at+length]...), frame[at+length:]...),
		"another document": append(append(append(append(bytes.Clone(frame[:first]), frame[second:second+46]...), frame[first+46:second]...), frame[first:first+46]...), frame[second+46:]...),
	} {
		if len(c) != len(frame) {
			t.Fatalf("%s: %d bytes", name, len(c))
		}
		if _, err := chain.DecodeSealedFrame(c, ring, nil); tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGoldenSealedFrames holds the sealed frames to their published bytes.
func TestGoldenSealedFrames(t *testing.T) {
	docs := []chain.Document{document("/result", chain.MaxInline), document("/evidence", 3)}
	tr := sealedTrace(chaintest.Options{Seed: 11, Key: "order-1", Documents: docs}, 1<<32|7)
	partly := tr.Entries[3]
	partly.Documents = []chain.Document{{Pointer: "/result", Erased: true}, partly.Documents[1]}
	ring := &chaintest.Ring{}
	key := tga.Sum(binary.BigEndian.AppendUint64([]byte("key of a test "), 1<<32|7))
	type vectors struct {
		Key    string        `json:"key"`
		KeyID  uint64        `json:"key_id"`
		Frames []frameVector `json:"frames"`
	}
	got := vectors{Key: hex.EncodeToString(key[:]), KeyID: 1<<32 | 7}
	add := func(name string, e *chain.Entry) {
		frame, spill := sealFrame(t, e, ring)
		v := frameVector{Name: name, Frame: hex.EncodeToString(frame), Flags: uint16(frame[2])<<8 | uint16(frame[3])}
		if spill != nil {
			v.Spill = tga.Sum(spill).String()
		}
		got.Frames = append(got.Frames, v)
	}
	add("genesis", &tr.Entries[0])
	add("call", &tr.Entries[2])
	add("effect, one document spilled, one inline", &tr.Entries[3])
	add("effect, one document erased, one inline", &partly)
	if *update {
		b, err := json.MarshalIndent(got, "", "  ")
		if err == nil {
			err = os.WriteFile("../../test_vectors/tga/sealed_frames.json", append(b, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var want vectors
	readVectors(t, "sealed_frames.json", &want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
}
