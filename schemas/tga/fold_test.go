package tga

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
)

// randomText appends a JSON value with members that are out of order, names with escapes
// and numbers that are not canonical, often nested.
func randomText(rng *rand.Rand, dst []byte, depth int) []byte {
	space := func() { dst = append(dst, "  "[:rng.IntN(3)]...) }
	space()
	switch k := rng.IntN(9); {
	case k < 3 && depth > 0:
		dst = append(dst, '[')
		for i := range rng.IntN(5) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = randomText(rng, dst, depth-1)
		}
		space()
		dst = append(dst, ']')
	case k < 7 && depth > 0:
		dst = append(dst, '{')
		for i := range rng.IntN(5) {
			if i > 0 {
				dst = append(dst, ',')
			}
			space()
			dst = fmt.Appendf(dst, `"%s%d"`, []string{"a", "z", `\u0062`, "é", "\U0001f600", "\uff5e", `q\n`}[rng.IntN(7)], i)
			space()
			dst = randomText(rng, append(dst, ':'), depth-1)
		}
		space()
		dst = append(dst, '}')
	default:
		dst = append(dst, []string{"1", "1.0", "-0", "1e2", "0.5", "true", "null", `"x"`, `"\u0041\n"`, `""`}[rng.IntN(10)]...)
	}
	space()
	return dst
}

// tree is everything that can be read from a document: names and the bytes of values.
func (d *document) tree(n int32, b *strings.Builder) {
	v := d.nodes[n]
	fmt.Fprintf(b, "%d %q %q\n", v.kind, d.name(n), d.valueBytes(n))
	if v.kind != kindArray && v.kind != kindObject {
		return
	}
	if err := d.children(n, func(c int32) *Error {
		d.tree(c, b)
		return nil
	}); err != nil {
		fmt.Fprintln(b, err)
	}
}

// TestFoldedTextReadsAsAnyOther: a document that keeps no children reads the same as one that keeps all, and
// its canonical form is that of jcs.
func TestFoldedTextReadsAsAnyOther(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 5_000 {
		text := randomText(rng, nil, 6)
		var trees [2]strings.Builder
		for i, folds := range []bool{false, true} {
			d, err := scan(text, noLimits, folds, nil)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if folds && len(d.nodes) != 1 {
				t.Fatalf("%s: %d nodes are kept of a folded text", text, len(d.nodes))
			}
			d.tree(0, &trees[i])
			d.free()
		}
		if trees[0].String() != trees[1].String() {
			t.Fatalf("%s\nreads as\n%sand folded as\n%s", text, &trees[0], &trees[1])
		}
		got, err := Canonicalize(text, noLimits)
		want, jcsErr := jcs.Transform(text)
		if err != nil || jcsErr != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s\ncanonical %s (%v)\njcs       %s (%v)", text, got, err, want, jcsErr)
		}
	}
}

// TestLongArtifactsReadBack: artifacts that are long enough to be folded, in their arguments, their
// resources and their meta.
func TestLongArtifactsReadBack(t *testing.T) {
	a := sample(RequestType)
	a.Request.Proposal.Args = []byte(`{"a":[` + strings.Repeat(`1,`, foldOver) + `1]}`)
	for i := range 100 {
		a.Request.Resources = append(a.Request.Resources, Resource{Kind: "service", ID: strings.Repeat("x", i+1)})
	}
	a.Meta = Meta{"a": "b", "n": Number("5"), "t": true}
	if err := a.Seal(); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func([]byte) (*Artifact, error){
		"given":  func(raw []byte) (*Artifact, error) { return DecodeArtifact(raw, Limits{}) },
		"spaced": func(raw []byte) (*Artifact, error) { return DecodeArtifact(append([]byte(" "), raw...), Limits{}) },
		"stored": DecodeStoredArtifact,
	} {
		got, err := read(a.Canonical)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(got.Request.Resources) != len(a.Request.Resources) || !bytes.Equal(got.Request.Proposal.Args, a.Request.Proposal.Args) ||
			got.Meta["n"] != Number("5") || got.Digest != a.Digest {
			t.Errorf("%s: it reads as another artifact", name)
		}
	}
}
