package client

import "context"

// RetentionRequest carries the retention rules of the daemon's configuration out: POST /v1/retention.
type RetentionRequest struct {
	DryRun bool `json:"dry_run,omitempty"` // only say what they would do
}

// Retained says what the retention rules did, or would do.
type Retained struct {
	Looked     int            `json:"looked"`     // traces
	Unreadable int            `json:"unreadable"` // of them; they are left as they are
	Sealed     int            `json:"sealed"`     // traces that were moved into sealed segments
	Rules      []RetainedRule `json:"rules"`
	More       bool           `json:"more"` // one run erases at most so much: the next one goes on
}

// RetainedRule is one of them, in the order of the file.
type RetainedRule struct {
	Rule     int    `json:"rule"`               // its number in the file, from 1
	Due      int    `json:"due"`                // traces that are old enough
	Erased   int    `json:"erased"`             // of them; the rest somebody was at
	Archived string `json:"archived,omitempty"` // file on the daemon's machine that has them
}

// Retain carries the retention rules of the daemon's configuration out now, as the daemon does it by
// itself from time to time.
func Retain(ctx context.Context, c *Client, req RetentionRequest) (Retained, error) {
	var r Retained
	err := c.ask(ctx, post("/v1/retention", req), &r)
	return r, err
}
