package client

import (
	"context"

	"github.com/tgad/tgad/schemas/wire"
)

// Retain carries the retention rules of the daemon's configuration out now, as the daemon does it by
// itself from time to time.
func Retain(ctx context.Context, c *Client, req wire.RetentionRequest) (wire.Retained, error) {
	var r wire.Retained
	err := c.ask(ctx, post("/v1/retention", req), &r)
	return r, err
}
