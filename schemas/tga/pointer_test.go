package tga

import (
	"strings"
	"testing"
)

func TestPointerTokens(t *testing.T) {
	for name, token := range map[string]string{
		"": "", "a": "a", "/": "~1", "~": "~0", "~1": "~01", "/~/": "~1~0~1", "~0": "~00", "ü/": "ü~1",
	} {
		if got := EscapeToken(name); got != token {
			t.Errorf("%q is the token %q, want %q", name, got, token)
		}
		if got := UnescapeToken(token); got != name {
			t.Errorf("the token %q is %q, want %q", token, got, name)
		}
	}
	whole := strings.Repeat("x", mostToken)
	for name, token := range map[string]string{
		whole:                       whole,
		whole + "x":                 whole + "…",
		whole[1:] + "ü":             whole[1:] + "…",
		whole[2:] + "ü":             whole[2:] + "ü",
		whole[2:] + "üx":            whole[2:] + "ü…",
		whole[1:] + "/":             whole[1:] + "~1",
		strings.Repeat("\x80", 200): "…",
	} {
		if got := ReadableToken(name); got != token {
			t.Errorf("%d bytes, %q, read as %q, want %q", len(name), name, got, token)
		}
	}
}
