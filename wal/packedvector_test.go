package wal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"hash/crc32"
	"io"
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

var writeVectors = flag.Bool("write", false, "write the vectors that a test compares")

// packedVectors are a packed segment and what it says, and others as what differs from it.
type packedVectors struct {
	Hex     string         `json:"hex"`
	Records []packedRecord `json:"records"`
	Cases   []golden.Case  `json:"cases"`
}

type packedRecord struct {
	Start uint32     `json:"start"`
	Group uint64     `json:"group"`
	Ops   []packedOp `json:"operations"`
}

type packedOp struct {
	Kind  Kind    `json:"kind"`
	Key   string  `json:"key"`
	Value string  `json:"value"`
	Body  *string `json:"body"` // null where it has none here
}

// frame is a block of a packed segment, as it is in the file and as the table has it.
type frame struct {
	kind   byte
	stored []byte
	packedEntry
}

// packedParts are what a packed segment is made of.
type packedParts struct {
	version     uint32
	frames      []frame
	end, bodies uint32
}

func (p packedParts) bytes() []byte {
	b := binary.BigEndian.AppendUint32([]byte(packedMagic), p.version)
	b = binary.BigEndian.AppendUint32(b, 1)
	head, table := bytes.Clone(b), []byte(nil)
	for _, f := range p.frames {
		table = append(table, f.kind, 0, 0, 0)
		for _, n := range []uint32{crc32.Checksum(f.stored, castagnoli), f.first, f.plain, uint32(len(b)), uint32(len(f.stored))} {
			table = binary.BigEndian.AppendUint32(table, n)
		}
		b = append(b, f.stored...)
	}
	tail := binary.BigEndian.AppendUint32(nil, uint32(len(p.frames)))
	tail = append(tail, 0, 0, 0, 0)
	tail = binary.BigEndian.AppendUint32(tail, p.end)
	tail = append(binary.BigEndian.AppendUint32(tail, p.bodies), packedEnd...)
	binary.BigEndian.PutUint32(tail[4:], packedSum(head, table, tail))
	return append(append(b, table...), tail...)
}

const packedVectorName = "log/0000000000000001.0001.z"

// packedBase rewrites a segment, and makes the file again with frames that compress nothing.
func packedBase(t *testing.T) (Options, packedParts) {
	t.Helper()
	seed := byte(0)
	o := Options{FS: vfs.NewMem(), Dir: "log", FirstSize: MinSegment, Size: MinSegment, Random: func(b []byte) error {
		for i := range b {
			seed += 31
			b[i] = seed
		}
		return nil
	}}
	fatal := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	fatal(o.FS.MkdirAll("log", 0o700))
	l, err := Create(o, tga.ID{0xa1}, tga.ID{0xb2})
	fatal(err)
	for _, fill := range []func(*Ops){
		func(o *Ops) {
			o.PutBody([]byte("one"), []byte("beside"), []byte("the first body"))
			o.Insert([]byte("key"), []byte("reserved"))
			o.PutBody([]byte("two"), nil, []byte("and the second"))
			o.Order([]byte("leaf"))
		},
		func(o *Ops) { o.PutBody([]byte("dropped"), nil, make([]byte, 40<<10)) },
		func(o *Ops) { o.PutBody([]byte("next"), nil, make([]byte, 30<<10)) }, // in segment 2
	} {
		var ops Ops
		fill(&ops)
		g := Group{Times: Times{Committed: 1700000000000, TS: 1600000000000}}
		g.Add(&ops, MaxRecord)
		_, err := l.Append(&g)
		fatal(err)
	}
	_, err = l.Rewrite(t.Context(), 1, func(op *Op) (bool, error) { return string(op.Key) != "dropped", nil }, nil)
	fatal(err)
	_, err = l.Finish()
	fatal(err)
	f, err := o.FS.Open(packedVectorName)
	fatal(err)
	defer f.Close()
	var cache blocks
	cache.init(maxBlock)
	made, err := openPacked(f, 1, &cache)
	fatal(err)
	p := packedParts{version: tga.LogPackedVersion, end: made.end, bodies: made.bodies}
	for kind, list := range [][]packedEntry{headPieces: made.heads, bodyPieces: made.body} {
		for _, e := range list {
			plain, err := made.block(&e)
			fatal(err)
			p.frames = append(p.frames, frame{byte(kind), golden.Stored(plain), e})
		}
	}
	return o, p
}

// readPacked reads a log whose first segment is b: every record and every body that is there.
func readPacked(t *testing.T, o Options, b []byte) (records []packedRecord, err error) {
	t.Helper()
	f, err := o.FS.Create(packedVectorName, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = io.Copy(f, bytes.NewReader(b))
	}
	if err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	l, err := Open(o)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	tail, err := l.Audit(func(r *Record) error {
		if r.At.Segment != 1 {
			return nil
		}
		x := packedRecord{Start: r.At.Start, Group: r.At.Group}
		err := r.Ops(func(op *Op) error {
			y := packedOp{Kind: op.Kind, Key: hex.EncodeToString(op.Key), Value: hex.EncodeToString(op.Value)}
			if op.Place == Inline {
				body, err := l.Read(op.Ref, op.Key)
				if err != nil && !Gone(err) {
					return err
				}
				if text := hex.EncodeToString(body); err == nil {
					y.Body = &text
				}
			}
			x.Ops = append(x.Ops, y)
			return nil
		})
		records = append(records, x)
		return err
	})
	if err == nil && tail.Doubt != nil {
		err = tail.Doubt
	}
	return records, err
}

// TestPackedSegmentIsAsItsVectors: each file has its verdict. With -write the vectors are made anew.
func TestPackedSegmentIsAsItsVectors(t *testing.T) {
	o, sound := packedBase(t)
	good := sound.bytes()
	var v packedVectors
	add := func(name string, b []byte) {
		records, err := readPacked(t, o, b)
		verdict := "ok"
		if err != nil {
			verdict = string(tga.CodeOf(err))
		}
		if (verdict == "ok") != (name == "good") {
			t.Errorf("%s: %s, %v", name, verdict, err)
		}
		if name == "good" {
			v.Hex, v.Records = hex.EncodeToString(b), records
		}
		v.Cases = append(v.Cases, golden.NewCase(name, good, b, verdict))
	}
	// forged changes frame i of a copy, or the copy: every checksum around it is made again.
	forged := func(name string, i int, change func(p *packedParts, f *frame, plain []byte) []byte) {
		p := sound
		p.frames = append([]frame(nil), sound.frames...)
		plain := bytes.Clone(p.frames[i].stored[12:])
		if b := change(&p, &p.frames[i], plain); b != nil {
			p.frames[i].stored = golden.Stored(b)
		}
		add(name, p.bytes())
	}
	const heads, bodies = 0, 1
	add("good", good)
	forged("a body is another", bodies, func(_ *packedParts, _ *frame, b []byte) []byte {
		return bytes.Replace(b, []byte("first"), []byte("worst"), 1)
	})
	forged("two bodies are swapped", bodies, func(_ *packedParts, _ *frame, b []byte) []byte {
		n := len("the first body")
		data := b[len(b)-2*n:]
		return append(bytes.Clone(b[:len(b)-2*n]), append(bytes.Clone(data[n:]), data[:n]...)...)
	})
	forged("an operation is another", heads, func(_ *packedParts, _ *frame, b []byte) []byte {
		return bytes.Replace(b, []byte("reserved"), []byte("observed"), 1)
	})
	forged("a header is of another place", heads, func(_ *packedParts, _ *frame, b []byte) []byte {
		b[4+8+3] += 8 // of the first record: all that is in its piece lies 8 bytes further on
		return b
	})
	forged("the identity is of another segment", heads, func(_ *packedParts, _ *frame, b []byte) []byte {
		id := b[4+8*int(binary.BigEndian.Uint32(b)):]
		id[55] = 2
		binary.BigEndian.PutUint32(id[4092:], crc32.Checksum(id[:4092], castagnoli))
		return b
	})
	forged("the identity does not have its checksum", heads, func(_ *packedParts, _ *frame, b []byte) []byte {
		b[4+8*int(binary.BigEndian.Uint32(b))+33] ^= 1
		return b
	})
	last := v.Records[len(v.Records)-1].Start
	header := func(b []byte) []byte { return b[len(b)-headerLen-24:] } // of the last record, which has 24 bytes of operations
	forged("a header does not have its checksum", heads, func(_ *packedParts, _ *frame, b []byte) []byte {
		header(b)[47] ^= 1
		return b
	})
	forged("a header names another record before it", heads, func(_ *packedParts, _ *frame, b []byte) []byte {
		id, err := decodeIdentity(b[4+8*int(binary.BigEndian.Uint32(b)):], 1)
		if err != nil {
			t.Fatal(err)
		}
		h := header(b)
		h[16] ^= 1
		binary.BigEndian.PutUint32(h, crc32.Update(id.seed(last), castagnoli, h[4:headerLen]))
		return b
	})
	forged("a frame ends too early", bodies, func(_ *packedParts, f *frame, _ []byte) []byte {
		f.stored = f.stored[:len(f.stored)-5]
		return nil
	})
	forged("a frame has bytes behind its pieces", bodies, func(_ *packedParts, f *frame, b []byte) []byte {
		f.plain++
		return append(b, 0)
	})
	forged("the table has another length of a frame's pieces", bodies, func(_ *packedParts, f *frame, _ []byte) []byte {
		f.plain++
		return nil
	})
	forged("the table has another offset of a frame's first piece", bodies, func(_ *packedParts, f *frame, _ []byte) []byte {
		f.first += 8
		return nil
	})
	forged("a frame of a kind that nobody knows", bodies, func(_ *packedParts, f *frame, _ []byte) []byte {
		f.kind = 3
		return nil
	})
	forged("bodies come before headers", heads, func(p *packedParts, _ *frame, _ []byte) []byte {
		p.frames[heads], p.frames[bodies] = p.frames[bodies], p.frames[heads]
		return nil
	})
	forged("no headers", heads, func(p *packedParts, _ *frame, _ []byte) []byte {
		p.frames = p.frames[bodies:]
		return nil
	})
	forged("a later version", heads, func(p *packedParts, _ *frame, _ []byte) []byte {
		p.version++
		return nil
	})
	at := func(name string, at int) {
		b := bytes.Clone(good)
		b[at] ^= 1
		add(name, b)
	}
	at("a frame does not have its checksum", bytes.Index(good, []byte("and the second")))
	at("the fill of a record does not have its frame's checksum", packedHeader+len(sound.frames[heads].stored)-1)
	at("another generation", packedHeader-1)
	at("the table does not have its checksum", len(good)-packedTrailer-1)
	at("another last byte", len(good)-1)
	add("the last byte is missing", good[:len(good)-1])
	add("a byte behind the end", append(bytes.Clone(good), 0))
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	if *writeVectors {
		if err := os.WriteFile("../test_vectors/tga/packed_segment.json", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want, err := golden.Vectors.ReadFile("tga/packed_segment.json"); err != nil || !bytes.Equal(want, b.Bytes()) {
		t.Errorf("the committed vectors are others (%v): go test ./wal -run TestPackedSegmentIsAsItsVectors -write", err)
	}
}
