package chain

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestFrameLimits: what an entry's frame has room for, at each limit and one past it.
func TestFrameLimits(t *testing.T) {
	chunk := make([]byte, MaxSpill/128) // shared: 128 of them are 4 GiB
	documents := func(n int) (list []Document) {
		for range n {
			list = append(list, Document{Pointer: "/a"})
		}
		return list
	}
	full := documents(128)
	for i := range full {
		full[i].Data = chunk
	}
	// Sealed, artifact and documents take more: each a key's number, a nonce and a tag.
	sealed := func(free int) Entry {
		list := append([]Document(nil), full...)
		list[0].Data = chunk[:len(chunk)-(1+128)*(keyLen+SealOverhead)+free]
		return Entry{Key: 1, Documents: list}
	}
	for name, c := range map[string]struct {
		e    Entry
		want string
	}{
		"4 GiB when it is sealed":  {sealed(0), ""},
		"a byte more then":         {sealed(1), "over 4 GiB of parts"},
		"254 documents":            {Entry{Documents: documents(254)}, ""},
		"255 documents":            {Entry{Documents: documents(255)}, "over 254 documents"},
		"a pointer of 1 KiB":       {Entry{Documents: []Document{{Pointer: strings.Repeat("p", 1<<10)}}}, ""},
		"a pointer of a byte more": {Entry{Documents: []Document{{Pointer: strings.Repeat("p", 1<<10+1)}}}, "a document pointer over 1 KiB"},
		"4 GiB":                    {Entry{Documents: full}, ""},
		"a byte more":              {Entry{Documents: append(full[:128:128], Document{Data: []byte{1}})}, "over 4 GiB of parts"},
		"a byte of artifact more":  {Entry{Documents: full, Artifact: &tga.Artifact{Canonical: []byte{1}}}, "over 4 GiB of parts"},
	} {
		if got := frameLimits(&c.e); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// headerOf returns the header of a frame of n bytes whose entry has some of them.
func headerOf(n int, preimage uint32) []byte {
	b := make([]byte, n)
	b[0], b[1] = entryMagic, tga.EntryFrameVersion
	if n >= headerLen {
		binary.BigEndian.PutUint32(b[112:], preimage)
		binary.BigEndian.PutUint32(b[116:], uint32(n))
	}
	return b
}

// TestHeaderAtItsLimits: one byte less or more than a header takes, and one byte more of
// entry than the frame has.
func TestHeaderAtItsLimits(t *testing.T) {
	newer := headerOf(2, 0)
	newer[1] = tga.SealedFrameVersion + 1
	other := headerOf(headerLen, 0)
	other[0]++
	for name, c := range map[string]struct {
		frame []byte
		want  tga.Code
	}{
		"nothing":                  {nil, tga.StateChecksumMismatch},
		"one byte":                 {[]byte{entryMagic}, tga.StateChecksumMismatch},
		"two, of a newer version":  {newer, tga.FormatTooNew},
		"two":                      {headerOf(2, 0), tga.StateChecksumMismatch},
		"no frame":                 {other, tga.StateChecksumMismatch},
		"a byte too short":         {headerOf(headerLen-1, 0), tga.StateChecksumMismatch},
		"a header":                 {headerOf(headerLen, 0), ""},
		"an entry of what is left": {headerOf(headerLen+7, 7), ""},
		"an entry of a byte more":  {headerOf(headerLen+7, 8), tga.StateChecksumMismatch},
		"an entry of far more":     {headerOf(headerLen+7, headerLen+7+headerLen), tga.StateChecksumMismatch},
	} {
		if _, err := decodeHeader(c.frame); tga.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestNoteHeaderAtItsLimits: one byte less than a note's header takes, and the header of another
// version.
func TestNoteHeaderAtItsLimits(t *testing.T) {
	frame := func(n int, magic, version byte) []byte {
		b := make([]byte, n)
		for i, c := range []byte{magic, version}[:min(n, 2)] {
			b[i] = c
		}
		if n >= noteHeaderLen {
			binary.BigEndian.PutUint32(b[108:], uint32(n))
		}
		return b
	}
	// A fault of the frame is told before the trace in its header is read.
	whole := frame(noteHeaderLen, noteMagic, tga.NoteFrameVersion)
	copy(whole[24:], "the trace it says")
	for name, c := range map[string]struct {
		frame []byte
		code  tga.Code
		named bool
	}{
		"nothing":                 {nil, tga.StateChecksumMismatch, false},
		"one byte":                {frame(1, noteMagic, 0), tga.StateChecksumMismatch, false},
		"two, of a newer version": {frame(2, noteMagic, tga.NoteFrameVersion+1), tga.FormatTooNew, false},
		"two, of no note":         {frame(2, noteMagic+1, tga.NoteFrameVersion+1), tga.StateChecksumMismatch, false},
		"two":                     {frame(2, noteMagic, tga.NoteFrameVersion), tga.StateChecksumMismatch, false},
		"a byte too short":        {whole[:noteHeaderLen-1], tga.StateChecksumMismatch, false},
		"a header of version 0":   {frame(noteHeaderLen, noteMagic, 0), tga.StateChecksumMismatch, false},
		"a header":                {whole, tga.StateChecksumMismatch, true}, // and no note
	} {
		_, _, _, err := DecodeNoteFrame(c.frame)
		var e *tga.Error
		if !errors.As(err, &e) || e.Code != c.code || !e.TraceID.IsZero() != c.named {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
