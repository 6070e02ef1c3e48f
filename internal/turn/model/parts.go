package model

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tgad/tgad/internal/turn/message"
)

const pdf = "application/pdf"

// readable returns the text of a file that is text.
func readable(p message.Part) (string, bool) {
	if p.Type != message.File || len(p.Data) == 0 || p.MIME == pdf || strings.HasPrefix(p.MIME, "audio/") || !utf8.Valid(p.Data) {
		return "", false
	}
	return string(p.Data), true
}

// isWeb reports whether a provider can fetch an address.
func isWeb(uri string) bool {
	return strings.HasPrefix(uri, "https://") || strings.HasPrefix(uri, "http://")
}

// isLink reports whether a part is only an address, which the model can be told although it
// cannot be shown the content. A file at another provider does not count: its id means nothing
// elsewhere.
func isLink(p message.Part) bool {
	return p.Type == message.File && len(p.Data) == 0 && p.URI != "" &&
		!strings.HasPrefix(p.URI, message.OpenAIFile) && !strings.HasPrefix(p.URI, message.AnthropicFile)
}

// label returns a text that stands for a part, or above it.
func label(p message.Part) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s", p.Type)
	for _, s := range []string{p.Name, p.MIME, p.URI} {
		if s != "" {
			b.WriteString(" " + s)
		}
	}
	return b.String() + "]"
}

func dataURL(p message.Part) string {
	return "data:" + p.MIME + ";base64," + base64.StdEncoding.EncodeToString(p.Data)
}

// cannot returns the error for a part that an API does not accept.
func cannot(i int, p message.Part) error {
	return fmt.Errorf("message %d: the model takes no %s", i, label(p))
}
