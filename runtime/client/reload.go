package client

import (
	"context"

	"github.com/tgad/tgad/schemas/wire"
)

// Notify says who is told of what waits for people. With test each of them is given a notice that says it is a
// test.
func Notify(ctx context.Context, c *Client, test bool) (wire.Notified, error) {
	var n wire.Notified
	err := c.ask(ctx, post("/v1/notify", wire.NotifyRequest{Test: test}), &n)
	return n, err
}

// Reload has the daemon read its configuration again. New calls take the new one, once it is checked
// as a whole; where it is refused, the old one holds, and the error says why.
func Reload(ctx context.Context, c *Client) (wire.Reloaded, error) {
	var r wire.Reloaded
	err := c.ask(ctx, post("/v1/reload", nil), &r)
	return r, err
}
