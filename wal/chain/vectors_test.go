package chain_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

var update = flag.Bool("update", false, "rewrite the golden frames")

const vectors = "../../test_vectors/tga/"

func readVectors(t *testing.T, name string, to any) {
	t.Helper()
	file, err := os.ReadFile(vectors + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file, to); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestTransitionVectors appends the published sequences of entries to an empty trace.
// They have no artifacts, so that nothing but the entry itself can be refused.
func TestTransitionVectors(t *testing.T) {
	var v struct {
		Sequences []struct {
			Name    string
			Entries []json.RawMessage
			State   string
			Refused *struct {
				At   uint64
				Code tga.Code
			}
		}
	}
	readVectors(t, "state_transition_vectors.json", &v)
	if len(v.Sequences) < 20 {
		t.Fatalf("%d sequences", len(v.Sequences))
	}
	for _, s := range v.Sequences {
		t.Run(s.Name, func(t *testing.T) {
			var tr *chain.Trace
			apply := func(raw []byte) error {
				e, err := tga.DecodeLogEntry(raw)
				if err != nil {
					return err
				}
				if tr == nil {
					tr = chain.NewTrace(e.TraceID)
				}
				return tr.Apply(&chain.Entry{LogEntry: *e})
			}
			for i, raw := range s.Entries {
				err := apply(raw)
				at := uint64(i + 1)
				if s.Refused == nil || s.Refused.At != at {
					if err != nil {
						t.Fatalf("entry %d: %v", at, err)
					}
					continue
				}
				if tga.CodeOf(err) != s.Refused.Code {
					t.Errorf("entry %d: %v, want %s", at, err, s.Refused.Code)
				}
				if at != uint64(len(s.Entries)) {
					t.Errorf("entries after the refused one")
				}
			}
			if got := tr.Head.State.String(); got != s.State {
				t.Errorf("state %q, want %q", got, s.State)
			}
		})
	}
}

// TestGoldenChain links the published artifacts: entries, notes, state and checkpoint
// come out byte for byte.
func TestGoldenChain(t *testing.T) {
	var v struct {
		Traces []struct {
			Name      string
			Documents []struct {
				Seq     uint64 `json:"sequence_number"`
				Pointer string
				Text    string
			}
			Artifacts  []json.RawMessage
			Entries    []json.RawMessage
			Preimages  []string `json:"entry_preimages"`
			Notes      []json.RawMessage
			State      json.RawMessage
			Checkpoint json.RawMessage
		}
	}
	readVectors(t, "golden_chain.json", &v)
	canonical := func(raw []byte) []byte {
		t.Helper()
		b, err := tga.Canonicalize(raw, tga.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, g := range v.Traces {
		t.Run(g.Name, func(t *testing.T) {
			var tr *chain.Trace
			for i, raw := range g.Artifacts {
				a, err := tga.DecodeArtifact(raw, tga.Limits{})
				if err != nil {
					t.Fatal(err)
				}
				if tr == nil {
					tr = chain.NewTrace(a.TraceID)
				}
				want, err := tga.DecodeLogEntry(g.Entries[i])
				if err != nil {
					t.Fatal(err)
				}
				got, err := tr.Link(a, want.TS)
				if err != nil {
					t.Fatal(err)
				}
				if got != *want || string(got.AppendPreimage(nil)) != g.Preimages[i] {
					t.Errorf("entry %d:\ngot  %+v\nwant %+v", i+1, got, *want)
				}
				e := chain.Entry{LogEntry: *want, Preimage: []byte(g.Preimages[i]), Artifact: a}
				for _, d := range g.Documents {
					if d.Seq == want.Seq {
						e.Documents = append(e.Documents, chain.Document{Pointer: d.Pointer, Data: []byte(d.Text)})
					}
				}
				if err := tr.Apply(&e); err != nil {
					t.Fatal(err)
				}
			}
			for _, raw := range g.Notes {
				n, err := tga.DecodeNote(raw)
				if err != nil {
					t.Fatal(err)
				}
				if err := tr.ApplyNote(n); err != nil {
					t.Error(err)
				}
			}
			state := tr.State()
			if got := state.AppendCanonical(nil); !bytes.Equal(got, canonical(g.State)) {
				t.Errorf("state\ngot  %s\nwant %s", got, g.State)
			}
			cp, err := tga.DecodeCheckpoint(g.Checkpoint)
			if err != nil {
				t.Fatal(err)
			}
			made := tr.Checkpoint(cp.TS)
			if got := made.AppendCanonical(nil); !bytes.Equal(got, canonical(g.Checkpoint)) {
				t.Errorf("checkpoint\ngot  %s\nwant %s", got, g.Checkpoint)
			}
		})
	}
}

type frameVector struct {
	Name  string `json:"name"`
	Frame string `json:"frame"` // hex
	Spill string `json:"spill_sha256,omitempty"`
	Flags uint16 `json:"flags"`
}

// TestGoldenFrames holds the codec to its published bytes. The frames are chosen so
// that every field, version and flags included, is other than zero in one of them.
func TestGoldenFrames(t *testing.T) {
	spilled := chaintest.Options{Seed: 11, Key: "order-1", Notes: 1,
		Documents: []chain.Document{document("/result", chain.MaxInline+1), document("/evidence", 3)}}
	tr := chaintest.New(spilled)
	denied := chaintest.New(chaintest.Options{Seed: 12, Verdict: tga.Deny})
	erased := chaintest.Erase(tr.Entries[3])
	partly := tr.Entries[3]
	partly.Documents = []chain.Document{partly.Documents[0], {Pointer: "/evidence", Erased: true}}
	var got []frameVector
	add := func(name string, e *chain.Entry) {
		frame, spill := chain.AppendFrame(nil, e)
		v := frameVector{Name: name, Frame: hex.EncodeToString(frame), Flags: uint16(frame[2])<<8 | uint16(frame[3])}
		if spill != nil {
			v.Spill = tga.Sum(spill).String()
		}
		got = append(got, v)
	}
	add("genesis", &tr.Entries[0])
	add("denied", &denied.Entries[1])
	add("call", &tr.Entries[2])
	add("effect, one document spilled, one inline", &tr.Entries[3])
	add("effect, erased", &erased)
	add("effect, one document spilled, one erased", &partly)
	note := chain.AppendNoteFrame(nil, &tr.Notes[0], chaintest.Start+5003, 1<<32|7)
	got = append(got, frameVector{Name: "note", Frame: hex.EncodeToString(note)})

	if *update {
		b, err := json.MarshalIndent(got, "", "  ")
		if err == nil {
			err = os.WriteFile(vectors+"frames.json", append(b, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var want []frameVector
	readVectors(t, "frames.json", &want)
	if len(got) != len(want) {
		t.Fatalf("%d frames, want %d", len(got), len(want))
	}
	_, spill := chain.AppendFrame(nil, &tr.Entries[3])
	var flags uint16
	for i, w := range want {
		if got[i] != w {
			t.Errorf("%s:\ngot  %+v\nwant %+v", w.Name, got[i], w)
		}
		frame, err := hex.DecodeString(w.Frame)
		if err != nil {
			t.Fatal(err)
		}
		flags |= w.Flags
		if frame[1] == 0 {
			t.Errorf("%s: version 0", w.Name)
		}
		if w.Name == "note" {
			_, _, _, err = chain.DecodeNoteFrame(frame)
		} else {
			_, err = chain.DecodeFrame(frame, func(int64) ([]byte, error) { return spill, nil })
		}
		if err != nil {
			t.Errorf("%s: %v", w.Name, err)
		}
	}
	if flags != 7 {
		t.Errorf("flags in all frames together %#x, want every one", flags)
	}
}
