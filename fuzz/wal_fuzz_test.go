package fuzz

import (
	"bytes"
	"testing"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func seeds() []*chaintest.Trace {
	doc := func(pointer, data string) chain.Document { return chain.Document{Pointer: pointer, Data: []byte(data)} }
	return []*chaintest.Trace{
		chaintest.New(chaintest.Options{Seed: 1}),
		chaintest.New(chaintest.Options{Seed: 2, Verdict: tga.Deny, Key: "k"}),
		chaintest.New(chaintest.Options{Seed: 3, Status: tga.StatusError, Notes: 2, Token: "aGVhZA.Ym9keQ.c2ln"}),
		chaintest.New(chaintest.Options{Seed: 4, Documents: []chain.Document{doc("/result", `{"ok":true}`), doc("/evidence", "seen")}}),
	}
}

// FuzzDecodeFrame: if bytes decode, they are exactly the frame of the decoded entry. So the decoder skips
// nothing in a frame.
func FuzzDecodeFrame(f *testing.F) { fuzzDecodeFrame(f) }

func fuzzDecodeFrame(f fuzzer) {
	for _, t := range seeds() {
		for _, e := range t.Entries {
			frame, _ := chain.AppendFrame(nil, &e)
			f.Add(frame)
			erased := chaintest.Erase(e)
			frame, _ = chain.AppendFrame(nil, &erased)
			f.Add(frame)
		}
	}
	big := chaintest.New(chaintest.Options{Documents: []chain.Document{{Pointer: "/result", Data: make([]byte, chain.MaxInline+1)}}})
	// The spilled bytes are not fuzzed: one digest covers them, and inputs of their size make the fuzzer too
	// slow.
	frame, spill := chain.AppendFrame(nil, &big.Entries[3])
	f.Add(frame)
	f.Fuzz(bounded(func(t *testing.T, frame []byte) {
		e, err := chain.DecodeFrame(bytes.Clone(frame), func(int64) ([]byte, error) { return spill, nil })
		if err != nil {
			if code := tga.CodeOf(err); code != tga.StateChecksumMismatch && code != tga.FormatTooNew {
				t.Fatalf("bytes are refused with %v", err)
			}
			return
		}
		again, spilled := chain.AppendFrame(nil, &e)
		if !bytes.Equal(again, frame) || len(spilled) > 0 && !bytes.Equal(spilled, spill) {
			t.Fatalf("%x decodes, its entry has the frame %x", frame, again)
		}
	}))
}

// FuzzDecodeSealedFrame does the same for frames whose parts are sealed: the parts that open are the ones
// that were sealed at that place.
func FuzzDecodeSealedFrame(f *testing.F) { fuzzDecodeSealedFrame(f) }

func fuzzDecodeSealedFrame(f fuzzer) {
	ring := &chaintest.Ring{Destroyed: map[chain.KeyID]bool{8: true}}
	for _, t := range seeds() {
		for _, e := range t.Entries {
			for e.Key = 7; e.Key < 9; e.Key++ {
				frame, _, err := chain.AppendSealedFrame(nil, &e, &chaintest.Ring{})
				if err != nil {
					f.Fatal(err)
				}
				f.Add(frame)
			}
		}
	}
	f.Fuzz(bounded(func(t *testing.T, frame []byte) {
		e, err := chain.DecodeSealedFrame(bytes.Clone(frame), ring, nil)
		if err != nil {
			if code := tga.CodeOf(err); code != tga.StateChecksumMismatch && code != tga.FormatTooNew {
				t.Fatalf("bytes are refused with %v", err)
			}
			return
		}
		if e.Key == 8 { // the decoder does not look at its parts
			return
		}
		if again, _, err := chain.AppendSealedFrame(nil, &e, ring); err != nil || !bytes.Equal(again, frame) {
			t.Fatalf("%x decodes, its entry has the frame %x, %v", frame, again, err)
		}
	}))
}

// FuzzDecodeNoteFrame does the same for notes.
func FuzzDecodeNoteFrame(f *testing.F) { fuzzDecodeNoteFrame(f) }

func fuzzDecodeNoteFrame(f fuzzer) {
	for _, n := range seeds()[2].Notes {
		f.Add(chain.AppendNoteFrame(nil, &n, 5, 6))
	}
	f.Fuzz(bounded(func(t *testing.T, frame []byte) {
		n, committed, epoch, err := chain.DecodeNoteFrame(bytes.Clone(frame))
		if err != nil {
			if code := tga.CodeOf(err); code != tga.StateChecksumMismatch && code != tga.FormatTooNew {
				t.Fatalf("bytes are refused with %v", err)
			}
			return
		}
		if again := chain.AppendNoteFrame(nil, &n, committed, epoch); !bytes.Equal(again, frame) {
			t.Fatalf("%x decodes, its note has the frame %x", frame, again)
		}
	}))
}

// FuzzReplayTamper changes the frames of a chain: one byte, a cut, a removal, a swap, or a frame of another
// chain instead of one. If the changed frames replay without an error, they are the original chain, apart
// from commit time and epoch, or the beginning of it: a chain without its last entries is valid in itself.
func FuzzReplayTamper(f *testing.F) { fuzzReplayTamper(f) }

func fuzzReplayTamper(f fuzzer) {
	f.Add(uint8(0), uint8(0), uint8(0), uint16(0), uint8(1))
	f.Add(uint8(1), uint8(1), uint8(2), uint16(90), uint8(128))
	f.Add(uint8(2), uint8(2), uint8(3), uint16(300), uint8(4))
	f.Add(uint8(3), uint8(3), uint8(1), uint16(900), uint8(255))
	f.Add(uint8(3), uint8(4), uint8(1), uint16(900), uint8(255))
	chains := seeds()
	f.Fuzz(func(t *testing.T, which, act, entry uint8, at uint16, mask uint8) {
		tr := chains[int(which)%len(chains)]
		other := chains[(int(which)+1)%len(chains)]
		frames := make([][]byte, len(tr.Entries))
		for i := range frames {
			frames[i], _ = chain.AppendFrame(nil, &tr.Entries[i])
		}
		n := int(entry) % len(frames)
		switch act % 5 {
		case 0:
			frames[n][int(at)%len(frames[n])] ^= mask
		case 1:
			frames[n] = frames[n][:int(at)%len(frames[n])]
		case 2:
			frames = append(frames[:n], frames[n+1:]...)
		case 3:
			m := int(at) % len(frames)
			frames[n], frames[m] = frames[m], frames[n]
		case 4:
			frames[n], _ = chain.AppendFrame(nil, &other.Entries[n%len(other.Entries)])
		}
		got, err := chain.Replay(tr.ID, func(yield func(chain.Entry, error) bool) {
			for _, frame := range frames {
				if e, err := chain.DecodeFrame(frame, nil); !yield(e, err) {
					return
				}
			}
		}, tr.AllNotes())
		if err != nil {
			return
		}
		for i, e := range got.Entries {
			if e != tr.Entries[i].LogEntry {
				t.Fatalf("entry %d replays as %+v", i+1, e)
			}
		}
		if len(got.Entries) != len(tr.Entries) && (act%5 != 2 || n != len(tr.Entries)-1) {
			t.Fatalf("%d entries replay of %d", len(got.Entries), len(tr.Entries))
		}
	})
}
