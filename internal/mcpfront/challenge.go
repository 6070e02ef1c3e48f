package mcpfront

import "github.com/tgad/tgad/internal/mcpfront/frames"

// challengeable is an outlet whose answers have a status.
type challengeable interface {
	// challenge sets the status of the answer to a request, before that is given.
	challenge(id []byte, ch *frames.Challenge)
}

// challenged tells the way to the client that a request's answer is a challenge.
func (c *conv) challenged(id []byte, b *batchReply, ch *frames.Challenge) {
	if b != nil {
		id = b.name
	}
	if out, ok := c.out.(challengeable); ok && ch != nil {
		out.challenge(id, ch)
	}
}
