package mcpfront

import (
	"crypto/rand"
	"encoding/hex"
	"io"
	"strconv"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

func parts(all ...io.WriterTo) []io.WriterTo { return all }

func randomHex() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// fail answers a request with a JSON-RPC error.
func (c *conv) fail(id []byte, b *batchReply, code int, tgaCode tga.Code, trace, words string) {
	env := mcpraw.Envelope{RawID: id, ID: mcpraw.Span{From: 0, To: 1}} // an answer, where it matters
	_ = c.hand(b, &env, frames.Text(say.Fault(id, code, tgaCode, trace, words)))
}

func itoa(n int) string { return strconv.Itoa(n) }

// optional is text with something before it; "" for none.
func optional(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}
