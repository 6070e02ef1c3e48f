package turn

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/schemas/tga"
)

// Model asks one language model. Generate makes at most one request to it: the turn decides what
// follows a failure. A failure is a [*Failure]. Any other error counts as an LLM_ERROR that the
// model may have answered.
type Model interface {
	Generate(ctx context.Context, q Question) (Answer, error)
}

// Question is what a model is asked (OSSA 0.2.9 §1 phase 4).
type Question struct {
	Model      string            `json:"model"`
	System     string            `json:"system_prompt"`
	Messages   []message.Message `json:"messages"`
	Tools      []ToolDef         `json:"tools"`
	Parameters Parameters        `json:"parameters"`
	// Key is the same each time this question is asked, also after a crash.
	Key string `json:"key"`
	// OnDelta, if set, is called with text as it arrives. It must not block.
	OnDelta func(text string) `json:"-"`
}

// ToolDef describes a tool to a model.
type ToolDef struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// Answer is what a model said.
type Answer struct {
	ID     string          `json:"id,omitempty"`
	Model  string          `json:"model"` // the one that answered
	Said   message.Message `json:"message"`
	Finish FinishReason    `json:"finish_reason"`
	Usage  Usage           `json:"usage"`
}

// FinishReason says why a model stopped.
type FinishReason string

// The reasons.
const (
	FinishStop          FinishReason = "stop"
	FinishLength        FinishReason = "length"
	FinishToolUse       FinishReason = "tool_use"
	FinishContentFilter FinishReason = "content_filter"
	FinishError         FinishReason = "error"
)

// Usage counts tokens.
type Usage struct {
	Input  int64 `json:"input_tokens"`
	Output int64 `json:"output_tokens"`
	Total  int64 `json:"total_tokens"`
}

// bounded returns the counts as they can be added up and recorded. Counts come from a model's
// server: negative ones would give a session tokens.
func (u Usage) bounded() Usage {
	bound := func(n int64) int64 { return min(max(n, 0), tga.MaxSafeInteger) }
	return Usage{bound(u.Input), bound(u.Output), bound(u.Total)}
}

// Failure is an error of a phase as OSSA 0.2.9 §2 describes one.
type Failure struct {
	Code       tga.Code       `json:"code"`
	Message    string         `json:"message"`
	Details    map[string]any `json:"details,omitempty"`
	RetryAfter time.Duration  `json:"retry_after,omitempty"` // the wait that the server asked for; 0 = none
	// Permanent says that the same request will fail again, whatever the table of
	// strategies says.
	Permanent bool  `json:"permanent,omitempty"`
	Err       error `json:"-"`
}

// Error returns "CODE: message".
func (f *Failure) Error() string { return string(f.Code) + ": " + f.Message }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Is reports whether target is f's code.
func (f *Failure) Is(target error) bool {
	c, ok := target.(tga.Code)
	return ok && c == f.Code
}
