package mcpfront

import (
	"errors"

	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// challenged tells the client's outlet that the answer to a request is a challenge.
func (c *conv) challenged(id []byte, b *batchReply, ch *frames.Challenge) {
	if b != nil {
		id = b.name
	}
	if out, ok := c.out.(entry.Challengeable); ok && ch != nil {
		out.Challenge(id, ch)
	}
}

// challengedBy is [conv.challenged] for an error that may hold a challenge.
func (c *conv) challengedBy(err error, id []byte, b *batchReply) {
	var ch *frames.Challenge
	if errors.As(err, &ch) {
		c.challenged(id, b, ch)
	}
}

// fail answers a request with a JSON-RPC error.
func (c *conv) fail(id []byte, b *batchReply, code int, tgaCode tga.Code, trace, words string) {
	env := mcpraw.Envelope{RawID: id, ID: mcpraw.Span{From: 0, To: 1}, Fault: mcpraw.Span{From: 0, To: 1}} // an answer, where it matters
	_ = c.hand(b, &env, frames.Text(say.Fault(id, code, tgaCode, trace, words)))
}
