package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// happened are the events of a turn that a view gets, with text that would move a cursor.
var happened = []turn.Progress{
	{Agent: "a", TurnNumber: 1, Phase: turn.Resolve, State: "started"},
	{Agent: "a", TurnNumber: 1, Phase: turn.Resolve, State: "done"},
	{Agent: "a", TurnNumber: 1, Phase: turn.Infer, State: "started"},
	{Agent: "a", TurnNumber: 1, Phase: turn.Infer, State: "text", Detail: "pay\x1b[2J"},
	{Agent: "a", TurnNumber: 1, Phase: turn.Infer, State: "done"},
	{Agent: "a", TurnNumber: 1, Phase: turn.Execute, State: "tool", Detail: "charge {\"memo\":\"\x1b[2J\"}"},
	{Agent: "a", TurnNumber: 1, Phase: turn.Execute, State: "failed", Detail: "TOOL_ERROR: no"},
}

func show(terminal, asJSON bool) string {
	var out bytes.Buffer
	v := &AgentView{s: &Streams{Err: &out, JSON: asJSON}, out: &out, terminal: terminal, began: time.Now()}
	for _, p := range happened {
		v.Observe(p)
	}
	v.Close()
	return out.String()
}

// TestAgentViewDrawsOneLineForATurn: the line is drawn anew, and only the view's own clearing of its line
// moves the cursor.
func TestAgentViewDrawsOneLineForATurn(t *testing.T) {
	got := show(true, false)
	if !strings.HasSuffix(got, "turn 1   ✓ resolve  ✓ infer  ✗ execute  \n") {
		t.Errorf("%q", got)
	}
	if strings.Contains(strings.ReplaceAll(got, "\r\x1b[K", ""), "\x1b") {
		t.Errorf("an escape of the text: %q", got)
	}
	if !strings.Contains(got, "→ charge") || !strings.Contains(got, "✗ TOOL_ERROR: no\n") {
		t.Errorf("%q", got)
	}
}

// TestAgentViewWritesPlainLines: without a terminal the view writes one line for each event, except for
// pieces of text.
func TestAgentViewWritesPlainLines(t *testing.T) {
	got := show(false, false)
	if n := strings.Count(got, "\n"); n != len(happened)-1 || strings.Contains(got, "\x1b") || strings.Contains(got, "\r") {
		t.Errorf("%d lines: %q", n, got)
	}
	for line := range strings.Lines(show(false, true)) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil || m["phase"] == "" {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// TestWarningsAreShownWithoutJSON: tools that were left out of the agent are named on stderr.
func TestWarningsAreShownWithoutJSON(t *testing.T) {
	var out, errs bytes.Buffer
	s := &Streams{Out: &out, Err: &errs}
	res := turn.Result{Status: turn.Completed, Text: "paid", Warnings: []turn.Warning{{Tool: "charge", Code: tga.NotFound, Reason: "gone\x1b[2J"}}}
	if err := s.AgentResult(res, AgentCommand{}); err != nil || out.String() != "paid\n" || errs.String() != "tgad: warning: tool charge: NOT_FOUND: gone\\x1b[2J\n" {
		t.Errorf("%v, %q, %q", err, out.String(), errs.String())
	}
}

// TestAgentResultHasItsExitCode.
func TestAgentResultHasItsExitCode(t *testing.T) {
	for _, c := range []struct {
		res  turn.Result
		code int
		out  string
	}{
		{turn.Result{Status: turn.Completed, Text: "two\nlines\x1b[2J"}, ExitOK, "two\nlines\\x1b[2J\n"},
		{turn.Result{Status: turn.Unsuccessful, Failure: &turn.Failure{Code: tga.ToolError, Message: "no"}}, ExitError, "TOOL_ERROR: no"},
		{turn.Result{Status: turn.Waiting, Waiting: &turn.Wait{Code: tga.EffectInDoubt, TraceID: tga.ID{1}}}, ExitInDoubt, "tgad agent decide 'a b.yaml' 00000000-0000-0000-0000-000000000000 --action ran"},
		{turn.Result{Status: turn.Waiting, Waiting: &turn.Wait{Code: tga.EscalationRequired, TraceID: tga.ID{1}}}, ExitError, "--action approve --note"},
		{turn.Result{Status: turn.Waiting, Waiting: &turn.Wait{Code: tga.LLMError, Target: "ops"}}, ExitError, "tgad agent decide"},
	} {
		var out bytes.Buffer
		s := &Streams{Out: &out, Err: &out}
		if got := ExitCode(s.AgentResult(c.res, AgentCommand{Manifest: "a b.yaml"})); got != c.code || !strings.Contains(out.String(), c.out) {
			t.Errorf("%+v: exit %d, %q", c.res, got, out.String())
		}
	}
}
