package tga

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestMillisIsWhatPackageTimeReads compares the reader and the writer of times with package time, near every
// border and on texts with one changed character.
func TestMillisIsWhatPackageTimeReads(t *testing.T) {
	want := func(s string) (Millis, bool) {
		at, err := time.Parse(millisLayout, s)
		return Millis(at.UnixMilli()), err == nil && at.Format(millisLayout) == s
	}
	check := func(s string) {
		t.Helper()
		m, ok := want(s)
		got, err := ParseMillis(s)
		if (err == nil) != ok || ok && got != m {
			t.Fatalf("ParseMillis(%q) = %d, %v; package time says %d, %v", s, got, err, m, ok)
		}
		if ok && m.String() != s {
			t.Fatalf("String of %q is %q", s, m.String())
		}
		if text, err := m.AppendText(nil); err != nil || string(text) != m.String() {
			t.Fatalf("AppendText of %q is %q, %v", s, text, err)
		}
	}
	for _, s := range []string{
		"", "2026-02-29T00:00:00.000Z", "2028-02-29T23:59:59.999Z", "1900-02-29T00:00:00.000Z", "2000-02-29T00:00:00.000Z",
		"0000-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "2026-04-31T00:00:00.000Z", "2026-12-31T24:00:00.000Z",
		"2026-06-30T23:59:60.000Z", "2026-13-01T00:00:00.000Z", "2026-00-01T00:00:00.000Z", "2026-01-00T00:00:00.000Z",
		"2026-01-15T19:00:00,000Z", "2026-01-15T19:00:00.0000Z", "2026-01-15t19:00:00.000Z", "2026-01-15T19:60:00.000Z", "1969-12-31T23:59:59.999Z",
	} {
		check(s)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		at := time.UnixMilli(rng.Int64N(253402300800000+62167219200000) - 62167219200000).UTC()
		s := []byte(at.Format(millisLayout))
		check(string(s))
		s[rng.IntN(len(s))] = "0123456789-:TZ. +"[rng.IntN(17)]
		check(string(s))
	}
}

// TestHexDigitsAreLowercase walks every byte at every place of a digest and of an id.
func TestHexDigitsAreLowercase(t *testing.T) {
	digest, id := strings.Repeat("0f", 32), "0190f3a2-7b1c-7def-8abc-0123456789ab"
	for c := range 256 {
		hex := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		for i := range digest {
			s := digest[:i] + string([]byte{byte(c)}) + digest[i+1:]
			d, err := ParseDigest(s)
			if (err == nil) != hex || hex && d.String() != s {
				t.Fatalf("ParseDigest(%q) = %v, %v", s, d, err)
			}
		}
		for i := range id {
			s := id[:i] + string([]byte{byte(c)}) + id[i+1:]
			got, err := ParseID(s)
			if err == nil && got.String() != s {
				t.Fatalf("ParseID(%q) = %v", s, got)
			}
			if err != nil && hex && id[i] != '-' && i != 14 && i != 19 {
				t.Fatalf("ParseID(%q): %v", s, err)
			}
			if err == nil && !hex && id[i] != '-' {
				t.Fatalf("ParseID takes %q", s)
			}
		}
	}
}

// TestEightAtATimeIsOneAtATime: the check of eight bytes at a time agrees with the check of single bytes,
// and eight letters are accepted in one step.
func TestEightAtATimeIsOneAtATime(t *testing.T) {
	for at := range 8 {
		for c := range 256 {
			b := uint64(0x6161616161616161)&^(0xff<<(8*at)) | uint64(c)<<(8*at)
			if all := allVerbatim(b); all && !verbatim[c] || !all && verbatim[c] && c != '!' && c != ']' && c != '#' {
				t.Fatalf("byte %#x at %d: all %v, alone %v", c, at, all, verbatim[c])
			}
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 1_000_000 {
		b := rng.Uint64() & 0x7f7f7f7f7f7f7f7f
		if !allVerbatim(b) {
			continue
		}
		for at := range 8 {
			if !verbatim[byte(b>>(8*at))] {
				t.Fatalf("%#x is taken whole", b)
			}
		}
	}
}

// TestEscapesAreFoundAnywhere: at every place of a string, a character that needs an escape is escaped, and
// every other one is not.
func TestEscapesAreFoundAnywhere(t *testing.T) {
	for c := range utf8.RuneSelf + 2 {
		for at := range 20 {
			s := strings.Repeat("a", at) + string(rune(c)) + strings.Repeat("b", 19-at)
			want := strings.Repeat("a", at) + string(rune(c)) + strings.Repeat("b", 19-at)
			if c < 0x20 || c == '"' || c == '\\' {
				want = strings.Repeat("a", at) + string(appendRune(nil, rune(c))) + strings.Repeat("b", 19-at)
			}
			if got := string(appendString(nil, s)); got != `"`+want+`"` {
				t.Fatalf("%q is written as %s", s, got)
			}
		}
	}
}

// TestSealedBytesAreTheirOwn: the bytes of a sealed artifact do not change when others are sealed after it.
func TestSealedBytesAreTheirOwn(t *testing.T) {
	for kind := RequestType; kind <= EffectType; kind++ {
		a := sample(kind)
		if err := a.Seal(); err != nil {
			t.Fatal(err)
		}
		before := string(a.Canonical)
		for n := range 50 {
			other := sample(ArtifactType(n%4 + 1))
			other.Meta = Meta{MetaNonce: strings.Repeat("z", n)}
			if err := other.Seal(); err != nil {
				t.Fatal(err)
			}
		}
		if string(a.Canonical) != before {
			t.Errorf("%s changed after it was sealed", kind)
		}
		if len(a.Canonical) != cap(a.Canonical) {
			t.Errorf("%s of %d bytes keeps %d", kind, len(a.Canonical), cap(a.Canonical))
		}
	}
}
