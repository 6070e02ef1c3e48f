package clip_test

import (
	"io"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/clip"
)

// TestHeadKeepsTheFirstBytes: at the limit it keeps everything, past it the first bytes. Each write is
// accepted completely.
func TestHeadKeepsTheFirstBytes(t *testing.T) {
	for text, want := range map[string]struct {
		kept string
		over bool
	}{"": {"", false}, "abc": {"abc", false}, "abcd": {"abcd", false}, "abcde": {"abcd", true}} {
		whole, pieces := clip.Head{Most: 4}, clip.Head{Most: 4}
		if n, err := io.WriteString(&whole, text); n != len(text) || err != nil {
			t.Errorf("%q: %d, %v", text, n, err)
		}
		for _, c := range strings.Split(text, "") {
			if n, err := io.WriteString(&pieces, c); n != len(c) || err != nil {
				t.Errorf("%q: %d, %v", text, n, err)
			}
		}
		for _, h := range []*clip.Head{&whole, &pieces} {
			if h.String() != want.kept || string(h.Bytes()) != want.kept || h.Over != want.over {
				t.Errorf("%q: kept %q, over %t", text, h, h.Over)
			}
		}
	}
}
