package clip_test

import (
	"testing"
	"unicode/utf8"

	"github.com/tgad/tgad/internal/clip"
)

func TestTextsAreCutAtTheLimit(t *testing.T) {
	for _, c := range []struct {
		s                   string
		n                   int
		bytes, runes, short string
	}{
		{"", 1, "", "", ""},
		{"abc", 3, "abc", "abc", "abc"},
		{"abcd", 3, "abc", "abc", "ab…"},
		{"abcd", 1, "a", "a", "…"},
		{"aü", 3, "aü", "aü", "aü"},
		{"aü", 2, "a", "aü", "aü"},
		{"aüb", 2, "a", "aü", "a…"},
		{"€€", 6, "€€", "€€", "€€"},
		{"€€", 5, "€", "€€", "€€"},
		{"€€", 4, "€", "€€", "€€"},
		{"€€", 3, "€", "€€", "€€"},
		{"€€", 2, "", "€€", "€€"},
		{"€€", 1, "", "€", "…"},
		{"𝄞x", 4, "𝄞", "𝄞x", "𝄞x"},
		{"𝄞x", 3, "", "𝄞x", "𝄞x"},
		{"a\xffb", 3, "a\xffb", "a�b", "a�b"},
		{"a\xff\xfeb", 3, "a", "a�b", "a�…"},
	} {
		if got := clip.Bytes(c.s, c.n); got != c.bytes {
			t.Errorf("%d bytes of %q: %q, want %q", c.n, c.s, got, c.bytes)
		}
		if got := clip.Runes(c.s, c.n); got != c.runes || !utf8.ValidString(got) {
			t.Errorf("%d characters of %q: %q, want %q", c.n, c.s, got, c.runes)
		}
		if got := clip.Short(c.s, c.n); got != c.short || !utf8.ValidString(got) || utf8.RuneCountInString(got) > c.n {
			t.Errorf("%q in %d characters: %q, want %q", c.s, c.n, got, c.short)
		}
	}
}
