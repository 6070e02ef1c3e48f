package client

import (
	"context"

	"github.com/tgad/tgad/schemas/wire"
)

// Retain applies the retention rules of the daemon's configuration now. The daemon also does this by
// itself from time to time.
func Retain(ctx context.Context, c *Client, req wire.RetentionRequest) (wire.Retained, error) {
	var r wire.Retained
	err := c.ask(ctx, post("/v1/retention", req), &r)
	return r, err
}
