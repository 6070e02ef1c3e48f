package main

import (
	"testing"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/schemas/tga"
)

// TestOfferedFormatsAreTaken: each format that --format offers is valid for a message.
func TestOfferedFormatsAreTaken(t *testing.T) {
	inputs := map[string]string{
		message.FormatText: "hello", message.FormatOpenAI: `[{"role":"user","content":"hello"}]`,
		message.FormatAnthropic: `[{"role":"user","content":"hello"}]`, message.FormatMCP: `[{"type":"text","text":"hello"}]`,
	}
	for _, format := range messageFormats {
		if _, err := message.Normalize([]byte(inputs[format]), format, message.FromUser, tga.Millis(1)); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
	if len(messageFormats) != len(inputs) {
		t.Errorf("%q", messageFormats)
	}
}
