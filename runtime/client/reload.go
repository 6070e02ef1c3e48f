package client

import "context"

// Notify says who is told of what waits for people. With test each of them is given a notice that says it is a
// test.
func Notify(ctx context.Context, c *Client, test bool) (Notified, error) {
	var n Notified
	err := c.ask(ctx, post("/v1/notify", NotifyRequest{Test: test}), &n)
	return n, err
}

// Reload has the daemon read its configuration again. New calls take the new one, once it is checked
// as a whole; where it is refused, the old one holds, and the error says why.
func Reload(ctx context.Context, c *Client) (Reloaded, error) {
	var r Reloaded
	err := c.ask(ctx, post("/v1/reload", nil), &r)
	return r, err
}
