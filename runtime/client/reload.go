package client

import (
	"context"

	"github.com/tgad/tgad/schemas/wire"
)

// Notify returns who is notified of what waits for people. With test, each of them gets a notice that says that
// it is a test.
func Notify(ctx context.Context, c *Client, test bool) (wire.Notified, error) {
	var n wire.Notified
	err := c.ask(ctx, post("/v1/notify", wire.NotifyRequest{Test: test}), &n)
	return n, err
}

// Reload lets the daemon read its configuration again. The daemon checks the new configuration as a
// whole, and then uses it for new calls. If it refuses it, the old one stays in use, and the error says why.
func Reload(ctx context.Context, c *Client) (wire.Reloaded, error) {
	var r wire.Reloaded
	err := c.ask(ctx, post("/v1/reload", nil), &r)
	return r, err
}
