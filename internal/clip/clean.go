package clip

import (
	"fmt"
	"strings"
	"unicode"
)

// Clean makes text from a log safe to show in a terminal, in a page and in one line. It replaces
// control and format characters by escapes.
func Clean(s string) string {
	if !strings.ContainsFunc(s, unsafeRune) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unsafeRune(r) {
			b.WriteString(strings.Trim(fmt.Sprintf("%q", r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func unsafeRune(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar || r == '\u2028' || r == '\u2029'
}
