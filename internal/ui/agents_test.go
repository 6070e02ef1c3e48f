package ui_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/ui"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// hostile is text that a stranger may have written anywhere.
const hostile = "</pre><script>alert(1)</script><img src=x onerror=alert(1)> \u202e \x1b[2J"

// harmless checks that no part of the hostile text is markup, and that no character of it turns or hides
// text.
func (s *stage) harmless(path, page string) {
	s.Helper()
	for _, bad := range []string{"<script>", "<img", "\u202e", "\x1b"} {
		if strings.Contains(page, bad) {
			s.Errorf("%s has %q", path, bad)
		}
	}
}

// helper is an agent's model and its one tool, which notes something in the turn's state.
type helper struct{ fails bool }

func (h *helper) Generate(_ context.Context, q turn.Question) (turn.Answer, error) {
	a := turn.Answer{ID: "r", Model: q.Model, Finish: turn.FinishStop, Usage: turn.Usage{Input: 10, Output: 5, Total: 15}}
	if h.fails {
		return a, &turn.Failure{Code: tga.LLMError, Message: "no model " + hostile, Permanent: true}
	}
	if q.Messages[len(q.Messages)-1].Role == message.Tool {
		a.Said = message.TextMessage(message.Assistant, "it is noted "+hostile, message.FromModel, 0)
		return a, nil
	}
	a.Said, a.Finish = message.TextMessage(message.Assistant, "", message.FromModel, 0), turn.FinishToolUse
	a.Said.ToolCalls = []message.ToolCall{{ID: "c1", Name: "note", Arguments: `{"text":"<script>alert(2)</script>"}`}}
	return a, nil
}

func (*helper) Resolve(context.Context, *turn.Agent) ([]turn.Tool, []turn.Warning, error) {
	return []turn.Tool{{
		Name: "note", Description: "notes", InputSchema: json.RawMessage(`{"type":"object"}`), Server: "local", Remote: "note",
		Transport: turn.OverFunction, Source: turn.ToolSource{Type: turn.FromManifest},
	}}, []turn.Warning{{Tool: "gone", Code: tga.NotFound, Reason: hostile}}, nil
}

func (*helper) Validate(*turn.Tool, []byte) error { return nil }

func (*helper) dispatch(ctx context.Context, c runtime.Call) (runtime.Reply, error) {
	v, ok := turn.StateFrom(ctx)
	if !ok {
		return runtime.Reply{}, errors.New("no state")
	}
	if err := v.Set("noted "+hostile, c.Args, 0); err != nil {
		return runtime.Reply{}, err
	}
	return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`"noted <script>alert(3)</script>"`)}, nil
}

// agents is a store of an agent that nobody has open, with a turn that ended, one that failed or waits, and a
// working state of two boundaries. It returns the view of it, the ended turn, and the working state's id.
func agents(t *testing.T) (s *stage, ended turn.Result, state tga.ID) {
	t.Helper()
	dir, ctx := filepath.Join(t.TempDir(), "data"), t.Context()
	db, err := engine.Open(dir, engine.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	h := &helper{}
	r, err := turn.New(db, runtime.DispatcherFunc(h.dispatch), runtime.AllowAll, turn.Options{
		Agents:   []*turn.Agent{{Name: "helper", Role: "You help.", Model: turn.ModelSpec{Provider: "local", Model: "m1"}}},
		Models:   map[string]turn.Model{"local": h},
		Resolver: h,
		Runtime: runtime.Options{Policy: func(string, string) runtime.Policy {
			return runtime.Policy{Licence: ledger.Licence{Kind: ledger.DedupeArgs}, LicenceSet: true, Resends: -1}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if ended, err = r.Run(ctx, turn.Request{Agent: "helper", SessionID: "s1", Message: []byte("note this " + hostile)}); err != nil || ended.Status != turn.Completed {
		t.Fatalf("%+v %v", ended, err)
	}
	h.fails = true
	if _, err := r.Run(ctx, turn.Request{Agent: "helper", SessionID: "s2", Message: []byte("note that")}); err != nil {
		t.Fatal(err)
	}
	state = ended.InteractionID
	state[15]++
	resources := &workstate.Registry{}
	if err := workstate.Add(resources, workstate.NewKV()); err != nil {
		t.Fatal(err)
	}
	w, err := workstate.Open(ctx, db, state, workstate.NewSession(), resources, workstate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, plan := range []string{"one", "two " + hostile} {
		if err := w.Update(ctx, "plan "+hostile, func(_ context.Context, tx *workstate.Tx) error {
			kv, err := workstate.Use[*workstate.KV](tx)
			if err == nil {
				kv.Set("plan", []byte(plan))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	reader, err := daemon.OpenReader(dir, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(dir, client.Options{Dial: reader.Dial})
	t.Cleanup(func() {
		c.Close()
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	})
	s = &stage{T: t, client: c}
	s.serve(ui.New(c, ui.Options{ReadOnly: true}))
	return s.login(), ended, state
}

// TestTurnsAreToldPhaseByPhase: an agent's turn is shown with its phases in their order, what was said, the
// call with a link to its page, and what it changed in its state. What a model and a tool said is text.
func TestTurnsAreToldPhaseByPhase(t *testing.T) {
	s, ended, _ := agents(t)
	_, list := s.get("/turns?all=1")
	s.harmless("/turns", list)
	first := ended.InvocationID.String()
	s.has(list, "helper", "s1", "s2", "/turns/"+first, `href="/turns/`+ended.InteractionID.String())
	if n := strings.Count(list, "<tr>"); n != 4 {
		t.Errorf("%d rows, want the head, the two turns of the first message and the one of the second", n)
	}
	_, page := s.get("/turns/" + first)
	s.harmless("/turns/"+first, page)
	s.has(page, "note this &lt;/pre&gt;", "gone: NOT_FOUND", "m1 is asked, with 1 messages and 1 tools", "local/m1, attempt 1, 10 tokens in, 5 out", "asks for", "success",
		"Before the turn", "noted &lt;/pre&gt;", "absent", "turn after", "/turns/"+ended.InteractionID.String())
	at := 0
	for _, phase := range []string{"init", "normalize", "resolve", "infer", "execute", "persist", "emit"} {
		next := strings.Index(page[at:], `<span class="state">`+phase+`</span>`)
		if next < 0 {
			t.Fatalf("phase %s is not there, or not in its order", phase)
		}
		at += next
	}
	calls := regexp.MustCompile(`success in \d+ ms <a class="id" href="(/traces/[0-9a-f-]+)"`).FindStringSubmatch(page)
	if calls == nil {
		t.Fatalf("the tool's call has no link: %s", page)
	}
	if status, call := s.get(calls[1]); status != http.StatusOK || !strings.Contains(call, "local note") {
		t.Errorf("the link of the call: %d", status)
	}
	_, last := s.get("/turns/" + ended.InteractionID.String())
	s.has(last, "it is noted &lt;/pre&gt;", "turn before")
	open := regexp.MustCompile(`href="(/turns/[0-9a-f-]+)"`).FindStringSubmatch(strings.Split(list, "s2")[0])
	_, failed := s.get(open[1])
	s.harmless(open[1], failed)
	s.has(failed, "LLM_ERROR")
	for path, want := range map[string]int{"/turns/x": 422, "/turns/0190b0f0-0000-7000-8000-000000000000": 404} {
		if status, body := s.get(path); status != want || !strings.Contains(body, `role="alert"`) {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
}

// TestWorkingStatesShowBeforeAndAfter: a state's boundaries are listed, each with what it changed and what
// going back would do.
func TestWorkingStatesShowBeforeAndAfter(t *testing.T) {
	s, _, id := agents(t)
	_, list := s.get("/states")
	at := "/states/" + id.String() + "/0"
	s.has(list, `href="`+at+`"`)
	_, page := s.get(at)
	s.harmless(at, page)
	found := regexp.MustCompile(`href="(`+at+`\?call=[^"]+)"`).FindAllStringSubmatch(page, -1)
	if len(found) != 2 {
		t.Fatalf("%d boundaries: %s", len(found), page)
	}
	newest := strings.ReplaceAll(found[0][1], "&amp;", "&")
	_, change := s.get(newest)
	s.harmless(newest, change)
	s.has(change, "resource ", `class="gone"`, `class="came"`, "Undone, the newest first", "tgad state rollback "+id.String())
	_, older := s.get(strings.ReplaceAll(found[1][1], "&amp;", "&"))
	if strings.Count(older, "<tr>") <= strings.Count(change, "<tr>") {
		t.Error("going back further takes back no more")
	}
	for path, want := range map[string]int{"/states/" + id.String() + "/7": 404, at + "?call=none": 404, "/states/" + id.String() + "/x": 422, "/states/x/0": 422} {
		if status, body := s.get(path); status != want || !strings.Contains(body, `role="alert"`) {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
}
