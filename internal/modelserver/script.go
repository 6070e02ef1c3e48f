package modelserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"
)

// Answer is what the server does about one request.
type Answer struct {
	Text      string     `json:"text,omitempty"`
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	// Finish is the reason to stop in the word of the API; "" = by what was said.
	Finish string `json:"finish,omitempty"`
	Input  int64  `json:"input_tokens,omitempty"`
	Output int64  `json:"output_tokens,omitempty"`

	// Status other than 0 and 200 is an error with Code and Message, and with RetryAfter
	// as its header.
	Status     int    `json:"status,omitempty"`
	Code       string `json:"code,omitempty"`
	Message    string `json:"message,omitempty"`
	RetryAfter string `json:"retry_after,omitempty"`

	// Hold makes the server wait for [Server.Release] before it answers. HoldAfter makes it
	// wait after so many events of a stream. PauseMS is the time between two events.
	Hold      bool  `json:"hold,omitempty"`
	HoldAfter int   `json:"hold_after,omitempty"`
	PauseMS   int64 `json:"pause_ms,omitempty"`
	// Cut breaks the connection after so many events of a stream, or in the middle of a
	// plain answer. With Clean, a stream just ends there without an error.
	Cut   int  `json:"cut,omitempty"`
	Clean bool `json:"clean,omitempty"`
	// Broken sends an error as an event of the stream after so many events.
	Broken int `json:"broken,omitempty"`
	// Malformed sends invalid JSON.
	Malformed bool `json:"malformed,omitempty"`
	// Body is sent instead of everything else, with Status and the content type of the request's form.
	Body string `json:"body,omitempty"`
	// Location is a header of Body's.
	Location string `json:"location,omitempty"`
}

// ToolCall is a call that the model asks for. Arguments is sent as it is.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

func (a Answer) failed() bool { return a.Status != 0 && a.Status != 200 }

// ReadScript reads a list of answers.
func ReadScript(raw []byte) ([]Answer, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var script []Answer
	if err := d.Decode(&script); err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	return script, nil
}

func (a Answer) pause() time.Duration { return time.Duration(a.PauseMS) * time.Millisecond }

// pieces cuts a text into pieces as a stream does, between any two characters.
func pieces(text string) (all []string) {
	for len(text) > 0 {
		n := min(5, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		all, text = append(all, text[:n]), text[n:]
	}
	return all
}
