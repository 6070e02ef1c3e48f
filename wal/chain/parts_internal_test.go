package chain

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// partOf returns the header of a part, with a pointer and bytes behind it.
func partOf(encoding, place byte, size uint64, pointer string, data int) []byte {
	b := make([]byte, partLen, partLen+len(pointer)+data)
	b[0], b[1] = encoding, place
	binary.BigEndian.PutUint16(b[2:], uint16(len(pointer)))
	binary.BigEndian.PutUint64(b[4:], size)
	return append(append(b, pointer...), make([]byte, data)...)
}

// TestPartsAtTheirLimits: the sizes between which a part is inline or spilled, and frames
// that end exactly where a part does, or a byte before.
func TestPartsAtTheirLimits(t *testing.T) {
	for name, x := range map[string]struct {
		part  []byte
		index int
		want  string // a part of the error; "" = none
	}{
		"nothing inline":            {partOf(plain, inline, 0, "", 0), 0, ""},
		"the most inline":           {partOf(plain, inline, MaxInline, "", MaxInline), 0, ""},
		"one more inline":           {partOf(plain, inline, MaxInline+1, "", MaxInline+1), 0, "its size is not for its place"},
		"the most but a byte there": {partOf(plain, inline, MaxInline, "", MaxInline-1), 0, "bytes cut short"},
		"the least spilled":         {partOf(plain, spilled, MaxInline+1, "", 0), 0, ""},
		"one less spilled":          {partOf(plain, spilled, MaxInline, "", 0), 0, "its size is not for its place"},
		"the most spilled":          {partOf(plain, spilled, MaxSpill, "", 0), 0, ""},
		"one more spilled":          {partOf(plain, spilled, MaxSpill+1, "", 0), 0, "its size is not for its place"},
		"no such place":             {partOf(plain, spilled+1, 1, "", 1), 0, "its size is not for its place"},
		"a header cut short":        {partOf(plain, inline, 0, "", 0)[:partLen-1], 0, "cut short"},
		"erased":                    {partOf(erased, inline, 0, "", 0), 0, ""},
		"erased with a size":        {partOf(erased, inline, 1, "", 1), 0, "erased, but with bytes"},
		"erased and spilled":        {partOf(erased, spilled, 0, "", 0), 0, "erased, but with bytes"},
		"sealed, in a plain frame":  {partOf(sealed, inline, 36, "", 36), 0, "has no keys"},
		"no such encoding":          {partOf(erased+1, inline, 0, "", 0), 0, "unknown encoding"},
		"a pointer":                 {partOf(plain, inline, 0, "/p", 0), 1, ""},
		"a pointer cut short":       {partOf(plain, inline, 0, "/p", 0)[:partLen+1], 1, "pointer cut short"},
		"a first with a pointer":    {partOf(plain, inline, 0, "/p", 0), 0, "only the first part"},
		"a second without":          {partOf(plain, inline, 0, "", 0), 1, "only the first part"},
	} {
		_, rest, err := decodePart(header{}, x.index, x.part)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) || len(rest) != 0 {
			t.Errorf("%s: %v and %d bytes, want %q", name, err, len(rest), x.want)
		}
	}
}

// TestSealedPartsAtTheirLimits: a sealed part has at least the length of nonce, tag and key id, and
// a sealed frame has no plain part.
func TestSealedPartsAtTheirLimits(t *testing.T) {
	for name, x := range map[string]struct {
		part  []byte
		index int
		want  string
	}{
		"nothing, sealed":          {partOf(sealed, inline, 36, "", 36), 0, ""},
		"one less":                 {partOf(sealed, inline, 35, "", 35), 0, "shorter than nothing would be"},
		"the most inline":          {partOf(sealed, inline, MaxInline, "", MaxInline), 0, ""},
		"the least spilled":        {partOf(sealed, spilled, MaxInline+1, "", 0), 0, ""},
		"one less spilled":         {partOf(sealed, spilled, MaxInline, "", 0), 0, "its size is not for its place"},
		"a plain artifact":         {partOf(plain, inline, 0, "", 0), 0, "not sealed"},
		"a plain document":         {partOf(plain, inline, 0, "/p", 0), 1, "not sealed"},
		"an erased artifact":       {partOf(erased, inline, 0, "", 0), 0, "not sealed"},
		"an erased document":       {partOf(erased, inline, 0, "/p", 0), 1, ""},
		"an encoding there is not": {partOf(erased+1, inline, 0, "", 0), 0, "unknown encoding"},
	} {
		_, _, err := decodePart(header{version: tga.SealedFrameVersion}, x.index, x.part)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

// TestSpillOfAFrameAtItsLimit: what all parts spill together is bounded before a byte of it
// is read.
func TestSpillOfAFrameAtItsLimit(t *testing.T) {
	asked := errors.New("asked")
	for size, read := range map[uint64]bool{MaxInline + 1: true, MaxSpill - MaxInline - 1: true, MaxSpill - MaxInline: false} {
		b := append(partOf(plain, spilled, MaxInline+1, "", 0), partOf(plain, spilled, size, "/p", 0)...)
		got := int64(0)
		_, err := decodeParts(header{parts: 2, flags: flagSpilled | flagDocuments}, b, func(n int64) ([]byte, error) {
			got = n
			return nil, asked
		})
		want := int64(MaxInline + 1 + size)
		if read && (!errors.Is(err, asked) || got != want) || !read && (!errors.Is(err, tga.StateChecksumMismatch) || got != 0) {
			t.Errorf("a spill of %d: %v, %d bytes were asked for", want, err, got)
		}
	}
	one := partOf(plain, spilled, MaxInline+1, "", 0)
	h := header{parts: 1, flags: flagSpilled}
	if _, err := decodeParts(h, one, nil); !errors.Is(err, tga.StateChecksumMismatch) {
		t.Errorf("nobody has the chunks: %v", err)
	}
	for _, n := range []int{MaxInline, MaxInline + 1, MaxInline + 2} {
		parts, err := decodeParts(h, one, func(int64) ([]byte, error) { return make([]byte, n), nil })
		if (err == nil) != (n == MaxInline+1) || err == nil && len(parts[0].data) != n {
			t.Errorf("%d bytes in the chunks: %v", n, err)
		}
	}
	if _, err := decodeParts(header{}, nil, nil); !errors.Is(err, tga.StateChecksumMismatch) {
		t.Errorf("no part: %v", err)
	}
}

// TestDigestMemberIsLeftOut: an artifact that ends with its digest member has a digest. With a byte
// less it has none.
func TestDigestMemberIsLeftOut(t *testing.T) {
	sum := tga.Sum([]byte("{"))
	whole := []byte(digestMember + sum.String() + `",`)
	if got, ok := artifactDigest(whole); !ok || got != sum {
		t.Errorf("%s, %v", got, ok)
	}
	for name, bad := range map[string][]byte{
		"a byte less":     whole[:len(whole)-1],
		"nothing":         nil,
		"another digest":  []byte(digestMember + tga.Sum(nil).String() + `",`),
		"no comma":        []byte(digestMember + sum.String() + `" `),
		"another member":  []byte(strings.Replace(string(whole), "_digest", "_digesT", 1)),
		"capitals in hex": []byte(digestMember + strings.ToUpper(sum.String()) + `",`),
	} {
		if _, ok := artifactDigest(bad); ok {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestSameMemory(t *testing.T) {
	b := []byte("abc")
	for _, x := range []struct {
		a, b []byte
		want bool
	}{{nil, nil, true}, {nil, []byte{}, true}, {b, b, true}, {b[:0], nil, true}, {b, []byte("abc"), false}, {b[:2], b, false}, {b[1:], b[:2], false}} {
		if got := same(x.a, x.b); got != x.want {
			t.Errorf("%q and %q: %v", x.a, x.b, got)
		}
	}
}

// TestRefusalNamesTheEdge: the error names the verdict that selects the edge, if there is one.
func TestRefusalNamesTheEdge(t *testing.T) {
	trace := NewTrace(tga.ID{1})
	for want, a := range map[string]*tga.Artifact{
		"no edge from no entry by supervisor_decision DENY": {Type: tga.DecisionType, Decision: &tga.SupervisorDecision{Decision: tga.Deny}},
		"no edge from no entry by tool_call":                {Type: tga.CallType},
	} {
		if _, err := trace.Link(a, 0); !errors.Is(err, tga.StateInvalidTransition) || !strings.HasSuffix(err.Error(), "append seq 1: "+want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestSizeOfADocumentIsNamed(t *testing.T) {
	effect := func(size int64) *tga.Artifact {
		return &tga.Artifact{Type: tga.EffectType, Effect: &tga.ToolEffect{DocumentHashes: []tga.DocumentHash{{Pointer: "/result", Hash: tga.Sum([]byte("x")), SizeBytes: size}}}}
	}
	for size, want := range map[int64]string{-1: "", 1: "", 0: "a size that differs", 2: "a size that differs"} {
		err := checkDocuments(&Entry{Artifact: effect(size), Documents: []Document{{Pointer: "/result", Data: []byte("x")}}})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("size %d: %v", size, err)
		}
	}
	err := checkDocuments(&Entry{Artifact: effect(1), Documents: []Document{{Pointer: "/result", Erased: true, Data: []byte("x")}}})
	if err == nil || !strings.Contains(err.Error(), "is erased and has bytes") {
		t.Error(err)
	}
}

// TestProofSpeaksOfTheseValues: an entry is proven only while none of its values was replaced, not
// even by an equal copy.
func TestProofSpeaksOfTheseValues(t *testing.T) {
	a := &tga.Artifact{Type: tga.EffectType, Digest: tga.Digest{1}, Canonical: []byte("{}")}
	fresh := func() *Entry {
		e := &Entry{LogEntry: tga.LogEntry{ArtifactDigest: a.Digest}, Preimage: []byte("{}"), Artifact: a, Documents: []Document{{Pointer: "/a", Data: []byte("x")}}}
		e.proof = proofOf(e)
		return e
	}
	if !fresh().proven() {
		t.Error("an entry that nobody touched is not proven")
	}
	erased := fresh()
	erased.Artifact, erased.Documents = nil, nil
	if erased.proof = proofOf(erased); !erased.proven() {
		t.Error("an erased one neither")
	}
	for name, change := range map[string]func(*Entry){
		"no proof":            func(e *Entry) { e.proof = nil },
		"entry":               func(e *Entry) { e.Seq++ },
		"preimage":            func(e *Entry) { e.Preimage = []byte("{}") },
		"artifact":            func(e *Entry) { b := *a; e.Artifact = &b },
		"no artifact":         func(e *Entry) { e.Artifact = nil },
		"digest of the entry": func(e *Entry) { e.ArtifactDigest = tga.Digest{2}; e.proof.entry = e.LogEntry },
		"canonical":           func(e *Entry) { e.proof.canonical = []byte("{}") },
		"pointer":             func(e *Entry) { e.Documents[0].Pointer = "/b" },
		"erased":              func(e *Entry) { e.Documents[0].Erased = true },
		"data":                func(e *Entry) { e.Documents[0].Data = []byte("x") },
		"no document":         func(e *Entry) { e.Documents = nil },
	} {
		e := fresh()
		if change(e); e.proven() {
			t.Errorf("%s was exchanged, and the entry is proven", name)
		}
	}
}
