package client

import "context"

// Reload has the daemon read its configuration again. New calls take the new one, once it is checked
// as a whole; where it is refused, the old one holds, and the error says why.
func Reload(ctx context.Context, c *Client) (Reloaded, error) {
	var r Reloaded
	err := c.ask(ctx, post("/v1/reload", nil), &r)
	return r, err
}
