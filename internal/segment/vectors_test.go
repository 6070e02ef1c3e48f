package segment_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

var writeVectors = flag.Bool("write", false, "write the vectors that a test compares")

// sealedVectors are a sealed segment and variants of it. A variant is stored as its difference.
type sealedVectors struct {
	Hex   string        `json:"hex"`
	Cases []golden.Case `json:"cases"`
}

// sealedParts are the parts of a sealed segment of one block.
type sealedParts struct {
	version     byte
	flags       byte
	traces      int
	block, list []byte // zstd frames
	index       []byte // of the footer: its description of each trace
	flip        byte   // of the block's digest in the footer
}

func (p sealedParts) bytes() []byte {
	b := append([]byte("TGADSEG\n"), 0, 0, 0, p.version, 0, 0, 0, p.flags)
	footer := binary.BigEndian.AppendUint32([]byte("FOOT"), 1)
	footer = binary.BigEndian.AppendUint32(footer, uint32(p.traces))
	footer = append(footer, 0, 0, 0, 0)
	block := placed(len(b), p.block)
	block[16] ^= p.flip
	b = appendPart(b, "BLOK", uint32(p.traces), p.block)
	footer = append(append(footer, block...), placed(len(b), p.list)...)
	b = appendPart(b, "LIST", uint32(p.traces), p.list)
	return ended(b, append(footer, p.index...))
}

func replaced(t *testing.T, b []byte, old, new string) []byte {
	t.Helper()
	if len(old) != len(new) || !bytes.Contains(b, []byte(old)) {
		t.Fatalf("%q is not there, or not as long as %q", old, new)
	}
	return bytes.Replace(b, []byte(old), []byte(new), 1)
}

// sealedCases makes segments from the writer's segment of two traces: a good one, and forged ones. In a
// forged one every digest is right but the one of the forged part.
func sealedCases(t *testing.T) (good []byte, cases map[string][]byte, order []string) {
	t.Helper()
	traces := []*segment.Trace{
		trace(chaintest.Options{Seed: 1, Key: "order-1", Notes: 2, Documents: []chain.Document{document("/result", 40)}}),
		trace(chaintest.Options{Seed: 2, Verdict: tga.Deny}),
	}
	made := seal(t, traces...)
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	part := func(at int) (plain []byte, end int) {
		end = at + 16 + int(binary.BigEndian.Uint64(made[at+8:]))
		plain, err := dec.DecodeAll(made[at+16:end], nil)
		if err != nil {
			t.Fatal(err)
		}
		return plain, end
	}
	records, at := part(16)
	list, footer := part(at)
	index := made[footer+16+2*48 : len(made)-88]
	sound := sealedParts{version: 2, traces: len(traces), block: golden.Stored(records), list: golden.Stored(list), index: index}
	good = sound.bytes()
	cases = map[string][]byte{}
	add := func(name string, b []byte) { cases[name], order = b, append(order, name) }
	forged := func(name string, change func(p *sealedParts)) {
		p := sound
		p.index = bytes.Clone(index)
		change(&p)
		add(name, p.bytes())
	}
	add("good", good)
	forged("the footer has another digest of the block", func(p *sealedParts) { p.flip = 1 })
	forged("a byte of an artifact is another", func(p *sealedParts) {
		p.block = golden.Stored(replaced(t, records, `"intent":"`, `"intemt":"`))
	})
	forged("the first two entries are swapped", func(p *sealedParts) {
		one := 36 + int(binary.BigEndian.Uint32(records[24:]))
		two := one + 12 + int(binary.BigEndian.Uint32(records[one:]))
		p.block = golden.Stored(bytes.Join([][]byte{records[:24], records[one:two], records[24:one], records[two:]}, nil))
	})
	forged("the body of an entry is that of another", func(p *sealedParts) {
		b := bytes.Clone(records)
		one := 36 + int(binary.BigEndian.Uint32(b[24:])) // the second entry; it gets the digest of the first artifact
		copy(b[one+12+120:], b[36+120:36+152])
		p.block = golden.Stored(b)
	})
	at = 36 // of the first entry's frame
	for _, c := range []struct {
		name string
		at   int
		to   byte
	}{
		{"an entry is none", at, 'F'},
		{"an entry of a later version", at + 1, 3},
		{"an entry says that a part is spilled", at + 3, records[at+3] ^ 1},
		{"an entry is of another trace", at + 16, records[at+16] ^ 1},
		{"a document is another", bytes.LastIndex(records, []byte("/result")) + len("/result"), 0},
		{"a note is another", bytes.LastIndex(records, []byte(`"note_number":`)) + len(`"note_number":`), '7'},
		{"a note is none", bytes.LastIndex(records, []byte{'N', 1, 0, 0, 0, 0, 0, 2}), 'M'},
	} {
		forged(c.name, func(p *sealedParts) {
			b := bytes.Clone(records)
			b[c.at] = c.to
			p.block = golden.Stored(b)
		})
	}
	forged("a byte behind the records", func(p *sealedParts) { p.block = golden.Stored(append(bytes.Clone(records), 0)) })
	forged("the block has one trace more than records", func(p *sealedParts) { p.traces++ })
	forged("a flag that nobody knows", func(p *sealedParts) { p.flags = 1 })
	forged("the list has another key", func(p *sealedParts) { p.list = golden.Stored(replaced(t, list, "order-1", "order-2")) })
	forged("the list has another time", func(p *sealedParts) {
		b := bytes.Clone(list)
		b[7]++
		p.list = golden.Stored(b)
	})
	forged("the block ends too early", func(p *sealedParts) { p.block = p.block[:len(p.block)-5] })
	forged("the footer has another head of a trace", func(p *sealedParts) { p.index[40]++ })
	forged("the footer has another last note of a trace", func(p *sealedParts) { p.index[72]++ })
	forged("the footer has the traces in another order", func(p *sealedParts) {
		p.index = append(bytes.Clone(index[104:]), index[:104]...)
	})
	forged("a later version", func(p *sealedParts) { p.version = 3 })
	other := bytes.Clone(good)
	other[len(other)-9] ^= 1
	add("another digest of the file", other)
	end := bytes.Clone(good)
	end[len(end)-1] = 0
	add("another last byte", end)
	add("the last byte is missing", good[:len(good)-1])
	add("a byte behind the end", append(bytes.Clone(good), 0))
	return good, cases, order
}

// TestSealedSegmentIsAsItsVectors: each file has its expected verdict. With -write the test makes the
// vectors anew.
func TestSealedSegmentIsAsItsVectors(t *testing.T) {
	good, cases, order := sealedCases(t)
	v := sealedVectors{Hex: hex.EncodeToString(good)}
	for _, name := range order {
		_, err := verify(cases[name])
		verdict := "ok"
		if err != nil {
			verdict = string(tga.CodeOf(err))
		}
		if (verdict == "ok") != (name == "good") {
			t.Errorf("%s: %s, %v", name, verdict, err)
		}
		v.Cases = append(v.Cases, golden.NewCase(name, good, cases[name], verdict))
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	if *writeVectors {
		if err := os.WriteFile("../../test_vectors/tga/sealed_segment.json", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want, err := golden.Vectors.ReadFile("tga/sealed_segment.json"); err != nil || !bytes.Equal(want, b.Bytes()) {
		t.Errorf("the committed vectors are others (%v): go test ./internal/segment -run TestSealedSegmentIsAsItsVectors -write", err)
	}
}
