package mcpshim

import "github.com/tgad/tgad/internal/mcpfront/wire"

// challengeable is an outlet whose answers have a status.
type challengeable interface {
	// challenge sets the status of the answer to a request, before that is given.
	challenge(id []byte, ch *wire.Challenge)
}

// challenged tells the way to the client that a request's answer is a challenge.
func (c *conv) challenged(id []byte, b *batchReply, ch *wire.Challenge) {
	if b != nil {
		id = b.name
	}
	if out, ok := c.out.(challengeable); ok && ch != nil {
		out.challenge(id, ch)
	}
}
