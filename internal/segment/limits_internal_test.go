package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func TestHeaderAtItsLimits(t *testing.T) {
	with := func(at int, v byte) []byte {
		b := appendHeader(nil)
		b[at] = v
		return b
	}
	for name, c := range map[string]struct {
		header []byte
		want   tga.Code
	}{
		"as written":          {appendHeader(nil), ""},
		"the last of magic":   {with(7, '\r'), tga.StateChecksumMismatch},
		"version 0":           {with(11, 0), tga.StateChecksumMismatch},
		"version 1":           {with(11, 1), tga.FormatTooNew},
		"version 3":           {with(11, 3), tga.FormatTooNew},
		"the highest version": {with(8, 0xff), tga.FormatTooNew},
		"a flag":              {with(15, 1), tga.StateChecksumMismatch},
		"the highest flag":    {with(12, 0x80), tga.StateChecksumMismatch},
	} {
		if err := checkHeader(c.header); tga.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestBlockHeaderAtItsLimits(t *testing.T) {
	for name, c := range map[string]struct {
		header []byte
		ok     bool
	}{
		"no trace":        {appendBlockHeader(nil, blockMagic, 0, 5), false},
		"one":             {appendBlockHeader(nil, blockMagic, 1, 5), true},
		"the most":        {appendBlockHeader(nil, blockMagic, MaxTraces, 5), true},
		"one more":        {appendBlockHeader(nil, blockMagic, MaxTraces+1, 5), false},
		"a byte short":    {appendBlockHeader(nil, blockMagic, 1, 5)[:blockHeaderLen-1], false},
		"another's magic": {append([]byte(footerMagic), appendBlockHeader(nil, blockMagic, 1, 5)[4:]...), false},
	} {
		traces, stored, err := decodeBlockHeader(c.header)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (traces != binary.BigEndian.Uint32(c.header[4:]) || stored != 5) {
			t.Errorf("%s: %d traces in %d bytes", name, traces, stored)
		}
	}
}

// TestFooterAtItsLimits: the blocks fill the space between header and footer, each trace is in one of them,
// and the traces are in order. A footer that is off by one anywhere is refused.
func TestFooterAtItsLimits(t *testing.T) {
	id := func(first, last byte) tga.ID { return tga.ID{0: first, 15: last} }
	// Two blocks, the second one byte short, and three traces.
	good := func() footer {
		return footer{
			blocks: []blockInfo{{offset: headerLen, stored: 100}, {offset: headerLen + blockHeaderLen + 100}},
			list:   blockInfo{offset: headerLen + 2*blockHeaderLen + 100, stored: 7},
			traces: []Info{{TraceID: id(1, 9)}, {TraceID: id(2, 1), Block: 1}, {TraceID: id(2, 2), Block: 1}},
		}
	}
	const end = headerLen + 3*blockHeaderLen + 107
	empty := footer{list: blockInfo{offset: headerLen}}
	for name, c := range map[string]struct {
		change func(f *footer)
		bytes  func(b []byte) []byte
		end    uint64
		ok     bool
	}{
		"as it should be":             {end: end, ok: true},
		"nothing in it":               {change: func(f *footer) { *f = empty }, end: headerLen + blockHeaderLen, ok: true},
		"nothing in it, a byte there": {change: func(f *footer) { *f = empty }, end: headerLen + blockHeaderLen + 1},
		"a byte before the footer":    {end: end + 1},
		"a byte over the footer":      {end: end - 1},
		"a block's header over it":    {end: end - blockHeaderLen},
		"no room for a header":        {change: func(f *footer) { f.blocks, f.traces = f.blocks[:1], nil }, end: headerLen + blockHeaderLen - 1},
		"room for a header alone":     {change: func(f *footer) { f.blocks, f.traces = f.blocks[:1], nil }, end: headerLen + blockHeaderLen},
		"a block a byte longer":       {change: func(f *footer) { f.blocks[0].stored++ }, end: end},
		"a block a byte shorter":      {change: func(f *footer) { f.blocks[0].stored-- }, end: end},
		"a block a byte late":         {change: func(f *footer) { f.blocks[1].offset++ }, end: end},
		"a block a byte early":        {change: func(f *footer) { f.blocks[1].offset-- }, end: end},
		"the last with a byte":        {change: func(f *footer) { f.blocks[1].stored++ }, end: end},
		"the last with all of them":   {change: func(f *footer) { f.blocks[1].stored = 1<<64 - 1 }, end: end},
		"the last around once":        {change: func(f *footer) { f.blocks[1].stored = 1<<64 - blockHeaderLen }, end: end - blockHeaderLen},
		"around once by a byte too many": {change: func(f *footer) {
			f.blocks[1].stored = 2 * blockHeaderLen
			f.blocks = append(f.blocks, blockInfo{offset: end + 2*blockHeaderLen, stored: 1<<64 - 3*blockHeaderLen})
		}, end: end},
		"around once by three headers": {change: func(f *footer) {
			f.blocks[1].stored = 3 * blockHeaderLen
			f.blocks = append(f.blocks, blockInfo{offset: end + 2*blockHeaderLen, stored: 1<<64 - 3*blockHeaderLen})
		}, end: end + blockHeaderLen},
		"a border a byte on": {change: func(f *footer) {
			f.blocks[0].stored--
			f.blocks[1] = blockInfo{f.blocks[1].offset - 1, 1, tga.Digest{}}
		},
			end: end, ok: true}, // the digests show it
		"a trace in the last block":   {change: func(f *footer) { f.traces[0].Block = 1 }, end: end, ok: true},
		"a trace in the block after":  {change: func(f *footer) { f.traces[0].Block = 2 }, end: end},
		"the same trace twice":        {change: func(f *footer) { f.traces[2].TraceID = id(2, 1) }, end: end},
		"last bytes of ids in order":  {change: func(f *footer) { f.traces[2].TraceID = id(2, 0) }, end: end},
		"first bytes of ids in order": {change: func(f *footer) { f.traces[2].TraceID = id(1, 10) }, end: end},
		"a byte more":                 {bytes: func(b []byte) []byte { return append(b, 0) }, end: end},
		"a byte less":                 {bytes: func(b []byte) []byte { return b[:len(b)-1] }, end: end},
		"another's magic":             {bytes: func(b []byte) []byte { return append([]byte(blockMagic), b[4:]...) }, end: end},
		"what is 0 is 1":              {bytes: func(b []byte) []byte { b[15] = 1; return b }, end: end},
		"one block more":              {bytes: func(b []byte) []byte { b[7]++; return b }, end: end},
		"one trace less":              {bytes: func(b []byte) []byte { b[11]--; return b }, end: end},
		"a head":                      {bytes: func([]byte) []byte { return empty.append(nil) }, end: headerLen + blockHeaderLen, ok: true},
		"a head, a byte short":        {bytes: func([]byte) []byte { return empty.append(nil)[:footerHeadLen-1] }, end: headerLen + blockHeaderLen},
	} {
		f := good()
		if c.change != nil {
			c.change(&f)
		}
		b := f.append(nil)
		if c.bytes != nil {
			b = c.bytes(b)
		}
		got, err := decodeFooter(b, c.end)
		if (err == nil) != c.ok || err != nil && tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && !bytes.Equal(got.append(nil), b) {
			t.Errorf("%s: reads %+v", name, got)
		}
	}
}

// TestTrailerAtItsLimits: the footer lies between the header and the trailer, ends where the trailer begins,
// and is at most as long as the footer of the most traces.
func TestTrailerAtItsLimits(t *testing.T) {
	const least = headerLen + footerHeadLen + trailerLen
	for name, c := range map[string]struct {
		offset, length uint64
		size           int64
		ok             bool
	}{
		"the least":          {headerLen, footerHeadLen, least, true},
		"a byte late":        {headerLen + 1, footerHeadLen, least, false},
		"a byte early":       {headerLen - 1, footerHeadLen, least, false},
		"a byte shorter":     {headerLen, footerHeadLen - 1, least, false},
		"over the header":    {headerLen - 1, footerHeadLen + 1, least, false},
		"the most":           {headerLen, 16 + 48 + (1<<20)*(48+104), headerLen + 16 + 48 + (1<<20)*(48+104) + trailerLen, true},
		"a byte more":        {headerLen, 17 + 48 + (1<<20)*(48+104), headerLen + 17 + 48 + (1<<20)*(48+104) + trailerLen, false},
		"around once":        {headerLen + footerHeadLen + 1, 1<<64 - 1, least, false},
		"of another segment": {headerLen, footerHeadLen, least + 1, false},
	} {
		tr := trailer{offset: c.offset, length: c.length, footerSum: tga.Digest{1}, fileSum: tga.Digest{2}}
		b := tr.append(nil)
		got, err := decodeTrailer(b, c.size)
		if (err == nil) != c.ok || err == nil && got != tr {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if _, err := decodeTrailer(b[1:], c.size); err == nil {
			t.Errorf("%s: a trailer a byte short", name)
		}
		b[len(b)-1] ^= 1
		if _, err := decodeTrailer(b, c.size); err == nil {
			t.Errorf("%s: another's magic", name)
		}
	}
}

// TestPartsOfARecordAtTheirLimits: a trace may take its maximum and not a byte more, and every byte that its
// lengths state must be there.
func TestPartsOfARecordAtTheirLimits(t *testing.T) {
	for name, c := range map[string]struct {
		room   int64
		there  string
		n      uint64
		ok     bool
		short  bool
		remain int64
	}{
		"all of the room":      {room: 5, there: "12345", n: 5, ok: true},
		"a byte less":          {room: 5, there: "12345", n: 4, ok: true, remain: 1},
		"a byte more":          {room: 5, there: "123456", n: 6, remain: 5},
		"nothing":              {room: 0, n: 0, ok: true},
		"a byte that is not":   {room: 5, there: "1234", n: 5, short: true},
		"far more than fits":   {room: 5, n: 1<<64 - 1, remain: 5},
		"as a negative length": {room: 5, n: 1 << 63, remain: 5},
	} {
		rr := recordReader{r: strings.NewReader(c.there), room: c.room}
		b, err := rr.read(c.n)
		if (err == nil) != c.ok || err == nil && string(b) != c.there[:c.n] || errors.Is(err, io.ErrUnexpectedEOF) != c.short || rr.room != c.remain {
			t.Errorf("%s: %q, %v, room %d", name, b, err, rr.room)
		}
	}
}

func TestSizeOfATraceAtItsLimit(t *testing.T) {
	for size, want := range map[int64]tga.Code{0: "", MaxTrace: "", MaxTrace + 1: tga.LimitExceeded} {
		if err := checkSize(tga.ID{1}, size); tga.CodeOf(err) != want {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// TestRecordSizeIsABound: each part that may be long, alone. The record is at most as long as the computed
// size, or Verify might not read what Add accepted. The computed size is not much larger either.
func TestRecordSizeIsABound(t *testing.T) {
	const long = 20 << 10
	text := bytes.Repeat([]byte("x"), long)
	entry := func(e chain.Entry) *Trace {
		if e.Preimage == nil {
			e.Preimage = text[:600]
		}
		return &Trace{Entries: []chain.Entry{e}}
	}
	note := func(n tga.Note) *Trace {
		if n.Body == nil {
			n.Body = []byte(`{}`)
		}
		return &Trace{Notes: []Note{{Note: n}}}
	}
	for name, tr := range map[string]*Trace{
		"nothing":              {},
		"an entry":             entry(chain.Entry{LogEntry: tga.LogEntry{IdempotencyKey: string(text)}}),
		"an artifact":          entry(chain.Entry{Artifact: &tga.Artifact{Canonical: text}}),
		"a document":           entry(chain.Entry{Documents: []chain.Document{{Data: text}}}),
		"a pointer":            entry(chain.Entry{Documents: []chain.Document{{Pointer: string(text[:1<<10])}}}),
		"a note":               note(tga.Note{Body: text}),
		"a note's author":      note(tga.Note{Who: string(text[:255])}),
		"a long author":        note(tga.Note{Who: string(text)}),
		"an author to escape":  note(tga.Note{Who: strings.Repeat("\x01", 255)}),
		"a long one to escape": note(tga.Note{Who: strings.Repeat("\x01", long)}),
	} {
		const loose = 2 << 10
		size, counted := recordLength(t, tr), recordSize(tr)
		unescaped := int64(0)
		for _, n := range tr.Notes {
			unescaped = 5 * int64(len(n.Who)) // each may have taken six bytes when it was escaped
		}
		if counted < size || counted > size+loose+unescaped {
			t.Errorf("%s: %d bytes, counted %d", name, size, counted)
		}
	}
}

// TestListAtItsLimit: the list of a segment may take its maximum and not a byte more, both for its reader
// and for its writer.
func TestListAtItsLimit(t *testing.T) {
	for more, ok := range []bool{true, false} {
		if err := checkList(tga.ID{1}, int64(MaxList+more)); (err == nil) != ok || err != nil && tga.CodeOf(err) != tga.LimitExceeded {
			t.Errorf("%d bytes over: written: %v", more, err)
		}
		l := chain.Listing{OpenTrace: chain.OpenTrace{State: tga.Denied}, Tool: "pay"}
		b := appendListing(nil, &l)
		rr := recordReader{r: bytes.NewReader(b), room: int64(len(b) - more)}
		if got, err := rr.listing(tga.ID{}); (err == nil) != ok || err == nil && got != l || err != nil && tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("%d bytes over: read: %+v, %v", more, got, err)
		}
	}
}

// recordLength returns the length of the record of a trace.
func recordLength(t *testing.T, tr *Trace) int64 {
	t.Helper()
	record, err := tr.append(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(record))
}
