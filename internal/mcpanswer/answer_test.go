package mcpanswer

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		member, value string
		attempt       uint32
		meaning       mcpraw.Meaning
		status        string
	}{
		{"result", `{}`, 1, mcpraw.IsEffect, tga.StatusSuccess},
		{"result", `{"isError":false,"resultType":"complete"}`, 2, mcpraw.IsEffect, tga.StatusSuccess},
		{"result", `{"isError":true,"content":[{"type":"text","text":"no"}]}`, 2, mcpraw.IsEffect, tga.StatusFailure},
		{"result", `{"IsError":true,"iserror":true}`, 1, mcpraw.IsEffect, tga.StatusSuccess}, // other members
		{"result", `{"isError":"yes"}`, 1, mcpraw.IsDoubt, ""},
		{"result", `{"isError":true,"isError":false}`, 1, mcpraw.IsDoubt, ""},
		{"result", `{"resultType":"input_required"}`, 1, mcpraw.WantsInput, ""},
		{"result", `{"resultType":"task","taskId":"t"}`, 1, mcpraw.IsTask, ""},
		{"result", `{"task":{"taskId":"t"}}`, 1, mcpraw.IsTask, ""},
		{"result", `{"task":{"taskId":"t"},"content":[]}`, 1, mcpraw.IsEffect, tga.StatusSuccess},
		{"result", `{"resultType":"task"}`, 1, mcpraw.IsDoubt, ""},
		{"result", `{"resultType":"novel"}`, 1, mcpraw.IsDoubt, ""},
		{"result", `{"resultType":1}`, 1, mcpraw.IsDoubt, ""},
		{"result", `null`, 1, mcpraw.IsDoubt, ""},
		{"result", `[]`, 1, mcpraw.IsDoubt, ""},
		{"error", `{"code":-32602}`, 1, mcpraw.IsRefusal, tga.StatusFailure},
		{"error", `{"code":-32602}`, 2, mcpraw.IsRefusal, tga.StatusFailure},
		{"error", `{"code":-32603}`, 1, mcpraw.IsEffect, tga.StatusFailure},
		{"error", `{"code":-32603}`, 2, mcpraw.IsDoubt, ""},
		{"error", `{"code":-32001}`, 1, mcpraw.IsDoubt, ""},
		{"error", `{"code":-32042}`, 1, mcpraw.WantsURL, ""},
		{"error", `{"code":-32042}`, 2, mcpraw.WantsURL, ""},
		{"error", `"no"`, 1, mcpraw.IsDoubt, ""},
	} {
		a := ReadResult([]byte(c.value))
		if c.member == "error" {
			a = ReadFault([]byte(c.value), c.attempt)
		}
		if a.Meaning != c.meaning || c.status != "" && a.Reply.Status != c.status || (a.Meaning != mcpraw.IsEffect) != (a.Why != "") && c.member == "result" {
			t.Errorf("%s %s at attempt %d: %+v, want meaning %d, status %q", c.member, c.value, c.attempt, a, c.meaning, c.status)
		}
		if c.member == "error" && !strings.HasSuffix(a.Why, a.Reply.ErrorMessage) {
			t.Errorf("%s: it says %q, and records %q", c.value, a.Why, a.Reply.ErrorMessage)
		}
		if (a.Meaning == mcpraw.IsTask) != (a.Task == "t") {
			t.Errorf("%s: task %q", c.value, a.Task)
		}
	}
}
