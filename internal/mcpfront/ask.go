package mcpfront

import (
	"context"
	"errors"
	"fmt"

	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/schemas/tga"
)

// posed is an open question to the client.
type posed struct {
	to   chan *frames.Frame
	over func() // called when the question is closed, before the client's next message is handled
}

// askClient sends a request of the shim to the client and returns its result. If ctx ends
// first, askClient cancels the request at the client.
func (c *conv) askClient(ctx context.Context, method string, params []byte, over func()) ([]byte, error) {
	id := []byte(`"` + ownPrefix + frames.Nonce() + `"`)
	raw := tga.AppendString(append(append([]byte(`{"jsonrpc":"2.0","id":`), id...), `,"method":`...), method)
	f := frames.NewFrame(append(append(append(raw, `,"params":`...), params...), '}'))
	got := make(chan *frames.Frame, 1)
	c.mu.Lock()
	c.questions[frames.KeyOf(id)] = &posed{to: got, over: over}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		if p := c.questions[frames.KeyOf(id)]; p != nil {
			delete(c.questions, frames.KeyOf(id))
			p.over()
		}
		c.mu.Unlock()
	}()
	if err := c.send(nil, &f.Envelope, f); err != nil {
		return nil, err
	}
	select {
	case f := <-got:
		defer f.Close()
		if !f.Result.Present() {
			said, err := f.Bytes(f.Fault, frames.SpillBytes)
			return nil, errors.Join(fmt.Errorf("the client answers %.200s", said), err)
		}
		return f.Bytes(f.Result, frames.SpillBytes)
	case <-ctx.Done():
		n := frames.NewFrame(append(append([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), id...), "}}"...))
		_ = c.send(nil, &n.Envelope, n) // a client that is gone is seen by send
		return nil, context.Cause(ctx)
	case <-c.life.Done():
		return nil, attempt.ErrOver
	}
}

// ownQuestion handles a client's answer to a question of the shim. It reports whether the
// answer is one.
func (c *conv) ownQuestion(f *frames.Frame) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := frames.KeyOf(f.RawID)
	p := c.questions[key]
	delete(c.questions, key)
	if p != nil {
		p.over()
		p.to <- f // does not block: the channel has room for one, and only one comes
	}
	return p != nil
}
