package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/manifest"
	"github.com/tgad/tgad/schemas/tga"
)

// AgentView shows turns as they happen. On a terminal it draws one line for each turn and
// updates it with each phase; elsewhere it prints a line, or with JSON an object, for each
// thing that happens.
type AgentView struct {
	s        *Streams
	out      io.Writer
	terminal bool
	began    time.Time

	mu    sync.Mutex
	turn  tga.ID
	line  []string // phases of the turn so far
	text  string   // end of an answer that is arriving
	drawn bool
}

// NewAgentView makes a view that writes to stderr, so that stdout has the answer alone.
func NewAgentView(s *Streams) *AgentView {
	v := &AgentView{s: s, out: s.Err, began: time.Now()}
	v.terminal = Colour(s.Err) && !s.JSON
	return v
}

// Observe is told what happens.
func (v *AgentView) Observe(p turn.Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	detail := Clean(p.Detail)
	switch {
	case v.s.JSON:
		if p.State != "text" {
			v.json(p)
		}
	case v.terminal:
		v.draw(p, detail)
	case p.State == "text":
	default:
		v.print("%7.3fs  %-12s turn %-3d %-9s %-8s %s\n", time.Since(v.began).Seconds(), p.Agent, p.TurnNumber, p.Phase, p.State, clip.Short(detail, 160))
	}
}

// Warn shows what goes wrong beside the turns.
func (v *AgentView) Warn(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.s.JSON {
		if b, err := json.Marshal(map[string]string{"warning": text}); err == nil {
			v.print("%s\n", b)
		}
		return
	}
	v.end()
	v.print("tgad: warning: %s\n", Clean(text))
}

func (v *AgentView) json(p turn.Progress) {
	b, err := json.Marshal(map[string]any{
		"interaction_id": p.InteractionID.String(), "agent": p.Agent, "turn": p.TurnNumber,
		"phase": p.Phase, "state": p.State, "detail": p.Detail,
	})
	if err == nil {
		v.print("%s\n", b)
	}
}

// print writes to stderr. A failed write is ignored, so that the turn goes on.
func (v *AgentView) print(format string, args ...any) {
	_, _ = fmt.Fprintf(v.out, format, args...)
}

func (v *AgentView) draw(p turn.Progress, detail string) {
	if p.InteractionID != v.turn {
		v.end()
		v.turn, v.line = p.InteractionID, nil
	}
	mark := map[string]string{"started": "▸ ", "done": "✓ ", "failed": "✗ ", "waiting": "‖ ", "retry": "↻ "}[p.State]
	switch p.State {
	case "tool", "result":
		v.clear()
		sign := map[string]string{"tool": "→", "result": "←"}[p.State]
		v.print("         %s %s\n", sign, clip.Short(detail, 100))
	case "text":
		v.text = tail(v.text+detail, 60)
	default:
		v.text = ""
		word := mark + string(p.Phase)
		if n := len(v.line); n > 0 && strings.HasSuffix(v.line[n-1], " "+string(p.Phase)) {
			v.line[n-1] = word
		} else {
			v.line = append(v.line, word)
		}
		if p.State == "failed" || p.State == "waiting" || p.State == "retry" {
			v.clear()
			v.print("         %s%s\n", mark, clip.Short(detail, 110))
		}
	}
	v.clear()
	v.print("turn %-3d %s  %s", p.TurnNumber, strings.Join(v.line, "  "), v.text)
	v.drawn = true
}

func (v *AgentView) clear() {
	if v.drawn {
		v.print("\r\x1b[K")
		v.drawn = false
	}
}

func (v *AgentView) end() {
	if v.drawn {
		v.print("\n")
		v.drawn = false
	}
}

// Close ends the line that is being drawn.
func (v *AgentView) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.end()
}

func tail(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[len(r)-most:])
	}
	return s
}

// AgentCommand says how to type the verbs about one agent.
type AgentCommand struct {
	Manifest string
	Flags    []string // of every verb, with their values
}

// line returns the command line of a verb about a turn.
func (c AgentCommand) line(verb string, turn tga.ID, more ...string) string {
	words := append([]string{"tgad", "agent", verb, c.Manifest, turn.String()}, more...)
	words = append(words, c.Flags...)
	for i := range words {
		words[i] = ShellWord(words[i])
	}
	return strings.Join(words, " ")
}

// answers are the possible answers to a turn that waits. Each is printed as a complete command
// that works when it is pasted. Its texts are examples: the person replaces them.
var answers = struct{ ofTurn, ofRequest, ofDoubt [][]string }{
	ofTurn: [][]string{
		{"retry", "--note", "why it is tried again"}, {"skip", "--note", "why it goes on without"},
		{"fallback", "--value", `"the answer in its place"`, "--note", "why this is the answer"}, {"abort", "--note", "why the turn ends here"},
	},
	ofRequest: [][]string{{"approve", "--note", "why it may be called"}, {"deny", "--note", "why it may not be called"}},
	ofDoubt: [][]string{
		{"ran", "--value", `"what the tool answered"`, "--note", "how you know that it ran"}, {"failed", "--note", "how you know that it failed"},
		{"not-run", "--note", "how you know that it did not run"}, {"abandon", "--note", "why nobody will know"},
	},
}

// AgentResult prints the result of an invocation, and returns an error with its exit code.
func (s *Streams) AgentResult(res turn.Result, typed AgentCommand) error {
	if s.JSON {
		if err := s.Line(agentResult(res)); err != nil {
			return err
		}
	} else {
		for _, w := range res.Warnings {
			if _, err := fmt.Fprintf(s.Err, "tgad: warning: tool %s: %s: %s\n", Clean(w.Tool), w.Code, Clean(w.Reason)); err != nil {
				return err
			}
		}
		s.printResult(res, typed)
	}
	switch {
	case res.Status == turn.Waiting && res.Waiting.Code == tga.EffectInDoubt:
		return Silent(ExitInDoubt)
	case res.Status != turn.Completed:
		return Silent(ExitError)
	}
	return nil
}

func (s *Streams) printResult(res turn.Result, typed AgentCommand) {
	switch res.Status {
	case turn.Completed:
		s.Printf("%s\n", cleanLines(res.Text))
	case turn.Waiting:
		w, with := res.Waiting, answers.ofTurn
		s.Printf("waiting   %s in phase %s of turn %s\n          %s\n", w.Code, w.Phase, w.InteractionID, Clean(w.Reason))
		if w.Target != "" {
			s.Printf("asked     %s\n", Clean(w.Target))
		}
		if !w.TraceID.IsZero() {
			s.Printf("trace     %s\n", w.TraceID)
			if with = answers.ofRequest; w.Code == tga.EffectInDoubt {
				with = answers.ofDoubt
			}
		}
		s.Printf("decide    with one of\n")
		for _, a := range with {
			s.Printf("  %s\n", Clean(typed.line("decide", w.InteractionID, append([]string{"--action"}, a...)...)))
		}
		s.Printf("go on     with\n  %s\n", Clean(typed.line("resume", w.InteractionID)))
	default:
		s.Printf("%s    %s\n", res.Status, Clean(res.Failure.Error()))
		for _, e := range res.Effects {
			if e.TraceID.IsZero() { // work that was handed over: the calls of another agent have the traces
				s.Printf("stands    %s %s\n", Clean(e.Name), e.Status)
				continue
			}
			s.Printf("stands    %s %s in trace %s\n", Clean(e.Name), e.Status, e.TraceID)
		}
	}
}

// agentResult is a result as JSON.
func agentResult(res turn.Result) map[string]any {
	out := map[string]any{
		"status": res.Status, "text": res.Text, "session_id": res.SessionID, "invocation_id": res.InvocationID.String(),
		"interaction_id": res.InteractionID.String(), "turn_number": res.TurnNumber, "turns": res.Turns,
		"usage": res.Usage, "effects": res.Effects, "transactions": res.Transactions, "warnings": res.Warnings,
	}
	if res.Failure != nil {
		out["failure"] = res.Failure
	}
	if w := res.Waiting; w != nil {
		wait := map[string]any{"interaction_id": w.InteractionID.String(), "phase": w.Phase, "code": w.Code, "reason": w.Reason, "target": w.Target, "call_id": w.CallID}
		if !w.TraceID.IsZero() {
			wait["trace_id"] = w.TraceID.String()
		}
		out["waiting"] = wait
	}
	return out
}

// Manifest prints the agent that was made from a manifest, and the report about it.
func (s *Streams) Manifest(a *turn.Agent, r manifest.Report) error {
	if s.JSON {
		return s.Line(map[string]any{"agent": a.Name, "version": a.Version, "provider": a.Model.Provider, "model": a.Model.Model, "tools": len(a.Tools), "report": r})
	}
	s.Printf("agent     %s %s\nmodel     %s/%s\n", Clean(a.Name), Clean(a.Version), Clean(a.Model.Provider), Clean(a.Model.Model))
	for _, t := range a.Tools {
		name, what := t.Name, string(t.Transport)+" "+t.Server
		switch {
		case t.Delegation != nil:
			what = string(t.Delegation.Type) + " to " + t.Delegation.Target
		case t.Discover:
			if name = strings.Join(t.Only, ","); name == "" {
				name = "*"
			}
		}
		s.Printf("tool      %-24s %s\n", Clean(name), Clean(what))
	}
	if w := a.Workspace; w.Directory != "" {
		s.Printf("workspace directory %s\n", Clean(w.Directory))
	}
	if w := a.Workspace; w.Database != "" {
		s.Printf("workspace database  %s\n", Clean(w.Database))
	}
	for _, t := range r.Taken {
		s.Printf("taken     %-32s from %s\n", t.Field, Clean(t.From))
	}
	for _, c := range r.Contradictions {
		s.Printf("conflict  %-32s %s differs from %s, which is used\n", c.Field, Clean(c.Other), Clean(c.Taken))
	}
	for _, p := range r.Ignored {
		s.Printf("ignored   %s\n", Clean(p))
	}
	for _, w := range r.Warnings {
		s.Printf("warning   line %d: %s (at %s)\n", w.Line, Clean(w.Message), Clean(w.At))
	}
	return nil
}

// TurnRecords prints a turn's journal.
func (s *Streams) TurnRecords(records []turn.Record) error {
	for _, r := range records {
		if s.JSON {
			if err := s.Line(struct {
				turn.Record
				Digest tga.Digest `json:"record_digest"`
			}{r, r.Digest}); err != nil {
				return err
			}
			continue
		}
		s.Printf("%3d  %s  %-9s %-7s %s  %s\n", r.Number, r.TS, r.Phase, r.Kind, r.Digest.String()[:12], clip.Short(Clean(string(r.Body)), 120))
	}
	return nil
}
