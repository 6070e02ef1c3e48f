// Package vector makes the log's part of the golden vectors: segments as they lie on a disk.
package vector

import (
	"encoding/binary"
	"encoding/hex"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// Vectors are segments of a log as they lie on a disk, with what they say, and the position
// row of an index of it.
type Vectors struct {
	Segments []logSegment `json:"segments"`
	Position logPosition  `json:"position"`
}

type logSegment struct {
	Name     string      `json:"name"`
	Number   uint64      `json:"number"`
	Size     int         `json:"size"`
	Store    string      `json:"store"`
	Timeline string      `json:"timeline"`
	Salt     string      `json:"salt"`
	Pieces   []logPiece  `json:"pieces"` // all else is zeros
	Records  []logRecord `json:"records"`
	Closed   bool        `json:"closed"`
}

type logPiece struct {
	Offset int    `json:"offset"`
	Hex    string `json:"hex"`
}

type logRecord struct {
	Start     uint32  `json:"start"`
	End       uint32  `json:"end"`
	Group     uint64  `json:"group"`
	Checksum  string  `json:"checksum"`
	First     uint64  `json:"first_index"`
	Committed int64   `json:"committed"`
	TS        int64   `json:"ts"`
	Ops       []logOp `json:"operations"`
}

type logOp struct {
	Kind  wal.Kind  `json:"kind"`
	Place wal.Place `json:"place"`
	Key   string    `json:"key"`
	Value string    `json:"value"`
	Body  string    `json:"body,omitempty"`
	File  string    `json:"file,omitempty"` // id, SHA-256 and length of the body's file
}

type logPosition struct {
	Row      string `json:"row"`
	Segment  uint64 `json:"segment"`
	Start    uint32 `json:"start"`
	End      uint32 `json:"end"`
	Group    uint64 `json:"group"`
	Checksum string `json:"checksum"`
	Timeline string `json:"timeline"`
	Keys     uint64 `json:"ledger_keys"`
	Sum      string `json:"ledger_sum"`
}

// Log makes the vectors: the same in each run. It panics where its own log fails.
func Log() Vectors {
	seed := byte(0)
	options := wal.Options{FS: vfs.NewMem(), Dir: "log", FirstSize: wal.MinSegment, Size: wal.MinSegment, Random: func(b []byte) error {
		for i := range b {
			seed += 29
			b[i] = seed
		}
		return nil
	}}
	check(options.FS.MkdirAll("log", 0o700))
	log := must(wal.Create(options, tga.ID{0xa1}, tga.ID{0xb2}))
	at := uint64(0)
	group := func(fill ...func(*wal.Ops)) {
		var g wal.Group
		at++
		g.Times = wal.Times{Committed: tga.Millis(1700000000000 + at), TS: tga.Millis(1600000000000 + at)}
		for _, f := range fill {
			o := new(wal.Ops)
			f(o)
			if !g.Add(o, wal.MaxRecord) {
				panic("no room in a group")
			}
		}
		must(log.Append(&g))
	}
	file := wal.File{ID: tga.ID{0xf1}, Digest: tga.Sum([]byte("a long answer")), Length: 13}
	group(func(o *wal.Ops) {
		o.PutBody([]byte("e-key"), []byte("beside"), []byte("the body of the first"))
		o.Insert([]byte("l-key"), []byte("reserved"))
		o.Order([]byte("leaf one"))
	}, func(o *wal.Ops) {
		o.PutFile([]byte("t-key"), []byte("v"), file)
		o.Put([]byte("o-key"), []byte("open"))
		o.Order([]byte("leaf two"))
	})
	group(func(o *wal.Ops) {
		o.Delete([]byte("o-key"))
		o.PutBody([]byte("empty"), nil, nil)
		o.Order([]byte("leaf three"))
	})
	group(func(o *wal.Ops) { o.PutBody([]byte("long"), nil, make([]byte, 48<<10)) })
	group(func(o *wal.Ops) { o.PutBody([]byte("next"), nil, make([]byte, 20<<10)) }) // in segment 2
	group(func(o *wal.Ops) { o.PutBody([]byte("last"), nil, []byte("and its body")); o.Order([]byte("leaf four")) })
	end := log.End()
	must(log.Finish())

	one, two := rawSegment(options.FS, 1), rawSegment(options.FS, 2)
	records := readRecords(options)
	of := func(n uint64) (out []logRecord) {
		for _, r := range records {
			if r.segment == n {
				out = append(out, r.logRecord)
			}
		}
		return out
	}
	r2 := of(2)
	torn := append([]byte(nil), two...)
	last := r2[len(r2)-2] // before the one that closes
	clear(torn[last.Start+80:])
	// A file of use 1 that became segment 2: behind the new records lie those of before.
	recycled := append(append([]byte(nil), two[:r2[0].End]...), one[r2[0].End:]...)
	v := Vectors{Segments: []logSegment{
		vector("the first segment: every kind and place", one, of(1), false),
		vector("the second segment, closed", two, r2, true),
		vector("torn in its last record", torn, r2[:len(r2)-2], false),
		vector("recycled: behind the link lie records of an earlier use", recycled, r2[:1], false),
	}}
	v.Position = positionOf(end)
	return v
}

// positionOf is the row of an index that has taken over the log as far as end: a row with a
// value, and the value's version.
func positionOf(end wal.Position) logPosition {
	p := logPosition{Segment: end.Segment, Start: end.Start, End: end.End, Group: end.Group, Timeline: hex.EncodeToString(append([]byte{0xb2}, make([]byte, 15)...)), Keys: 1, Sum: "0000000000000007"}
	row := binary.BigEndian.AppendUint64([]byte{1, 1}, p.Segment)
	row = binary.BigEndian.AppendUint32(row, p.Start)
	row = binary.BigEndian.AppendUint32(row, p.End)
	row = binary.BigEndian.AppendUint64(row, p.Group)
	row = binary.BigEndian.AppendUint32(row, end.Sum)
	row = append(append(row, 0xb2), make([]byte, 15)...)
	row = binary.BigEndian.AppendUint64(row, p.Keys)
	row = binary.BigEndian.AppendUint64(row, 7)
	p.Row, p.Checksum = hex.EncodeToString(row), sum32(end.Sum)
	return p
}

func sum32(n uint32) string { return hex.EncodeToString(binary.BigEndian.AppendUint32(nil, n)) }

func rawSegment(fs vfs.FS, n int) []byte {
	f := must(fs.Open(fs.PathJoin("log", []string{"", "0000000000000001", "0000000000000002"}[n])))
	b := must(io.ReadAll(f))
	check(f.Close())
	return b
}

type placed struct {
	segment uint64
	logRecord
}

// readRecords reads the log back; links and the last word are no operations of a record
// that Scan shows, but of the vector.
func readRecords(options wal.Options) (out []placed) {
	log := must(wal.Open(options))
	must(log.Audit(func(r *wal.Record) error {
		x := placed{r.At.Segment, logRecord{Start: r.At.Start, End: r.At.End, Group: r.At.Group, Checksum: sum32(r.At.Sum),
			First: r.First, Committed: int64(r.Times.Committed), TS: int64(r.Times.TS)}}
		err := r.Ops(func(o *wal.Op) error {
			op := logOp{Kind: o.Kind, Place: o.Place, Key: hex.EncodeToString(o.Key), Value: hex.EncodeToString(o.Value)}
			switch o.Place {
			case wal.Inline:
				op.Body = short(must(log.Read(o.Ref, o.Key)))
			case wal.InFile:
				op.File = hex.EncodeToString(binary.BigEndian.AppendUint64(append(append([]byte(nil), o.File.ID[:]...), o.File.Digest[:]...), o.File.Length))
			}
			x.Ops = append(x.Ops, op)
			return nil
		})
		out = append(out, x)
		return err
	}))
	check(log.Close())
	return out
}

// short is a body, or its SHA-256 where it is long.
func short(b []byte) string {
	if len(b) > 100 {
		d := tga.Sum(b)
		return "sha256:" + hex.EncodeToString(d[:])
	}
	return "hex:" + hex.EncodeToString(b)
}

func vector(name string, b []byte, records []logRecord, closed bool) logSegment {
	s := logSegment{Name: name, Size: len(b), Store: hex.EncodeToString(b[16:32]), Timeline: hex.EncodeToString(b[32:48]),
		Number: binary.BigEndian.Uint64(b[48:]), Salt: hex.EncodeToString(b[56:64]), Records: records, Closed: closed}
	const block = 64
	for at := 0; at < len(b); {
		n := 0
		for at+n < len(b) && string(b[at+n:at+n+block]) != string(make([]byte, block)) {
			n += block
		}
		if n > 0 {
			s.Pieces = append(s.Pieces, logPiece{at, hex.EncodeToString(b[at : at+n])})
		}
		at += n + block
	}
	return s
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
