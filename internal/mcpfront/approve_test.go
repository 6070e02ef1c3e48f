package mcpfront

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// peopleWorld is a log in which people decide about the tool charge.
func peopleWorld(t *testing.T) *world {
	w := newWorld(t)
	_ = w.DB.Close()
	w.Super = runtime.Rules{Rules: []runtime.Rule{{Tool: "charge", Decision: tga.NeedsApproval, Rationale: "payments need a person", Required: 1}, {Decision: tga.Approve}}}
	w.OpenLog()
	return w
}

func (w *world) waiting() []runtime.Approval {
	w.T.Helper()
	all, err := w.RT.Approvals(context.Background())
	if err != nil {
		w.T.Fatal(err)
	}
	return all
}

// elicits makes the handshake of a client that can ask its person.
func (h *shim) elicits() {
	h.T.Helper()
	fronttest.Has(h.T, h.Ask("0", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}}`), `"name":"fake"`)
	h.Write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// asked reads the question to the person and returns its id.
func (h *shim) asked() string {
	h.T.Helper()
	var q string
	at := slices.IndexFunc(h.Said, func(line string) bool { return strings.Contains(line, `"elicitation/create"`) })
	if at >= 0 { // the question came while the test waited for another message
		q = h.Said[at]
		h.Said = slices.Delete(h.Said, at, at+1)
	} else {
		q = h.ReadLine()
	}
	fronttest.Has(h.T, q, `"method":"elicitation/create"`, `"mode":"form"`, "charge", "payments need a person", `"approve":{"type":"boolean"`)
	return string(mcpraw.At([]byte(q), "/id"))
}

func TestPersonAtTheClientDecides(t *testing.T) {
	w := peopleWorld(t)
	h := w.start()
	h.elicits()
	call := func(id, args string) {
		h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"charge","arguments":%s}}`, id, args))
	}
	call("1", `{"a":1}`)
	h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"approve":true,"reason":"seen the invoice"}}}`, h.asked()))
	fronttest.Has(t, h.Answer("1"), `"ok"`)
	for i, said := range []string{`{"action":"decline"}`, `{"action":"accept","content":{"approve":false}}`} {
		id := fmt.Sprint(2 + i)
		call(id, fmt.Sprintf(`{"no":%d}`, i))
		h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, h.asked(), said))
		fronttest.Has(t, h.Answer(id), "denied", "the person at the MCP client", "POLICY_VIOLATION")
	}
	if e := w.Effects(); len(e) != 1 || e[0].Args != `{"a":1}` {
		t.Errorf("effects %+v", e)
	}
	// A person who says neither yes nor no leaves the decision to others. The call ends when they have decided.
	call("9", `{"b":1}`)
	id := h.asked()
	h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"cancel"}}`, id))
	call("10", `{"c":1}`)
	second := h.asked()
	fronttest.Eventually(t, "two approvals", func() bool { return len(w.waiting()) == 2 })
	for _, p := range w.waiting() {
		if _, err := w.RT.Decide(t.Context(), p.TraceID, runtime.Vote{Who: "ann", Approve: true, Rationale: "seen the invoice"}); err != nil {
			t.Log("decide:", err)
		}
	}
	fronttest.Has(t, h.Answer("9"), `"ok"`)
	fronttest.Has(t, h.Answer("10"), `"ok"`)
	fronttest.Eventually(t, "the end of the question", func() bool {
		for _, line := range h.Said {
			if strings.Contains(line, "notifications/cancelled") && strings.Contains(line, second) {
				return true
			}
		}
		h.Said = append(h.Said, h.ReadLine())
		return false
	})
	if n := len(w.Effects()); n != 3 {
		t.Errorf("%d effects, want 3", n)
	}
}

// awayVotes is a log that is away for the first votes.
type awayVotes struct {
	asklog.Log
	away atomic.Int64 // for how many votes
}

func (l *awayVotes) Decide(ctx context.Context, trace tga.ID, vote wire.DecideRequest) (runtime.Result, error) {
	if l.away.Add(-1) >= 0 {
		return runtime.Result{}, errAway
	}
	return l.Log.Decide(ctx, trace, vote)
}

// TestVoteWaitsForTheLog: the vote of the person at the client counts, even if the log is away at that moment.
func TestVoteWaitsForTheLog(t *testing.T) {
	w := peopleWorld(t)
	log := &awayVotes{Log: w.Local()}
	log.away.Store(3)
	w.log = log
	h := w.start()
	h.elicits()
	h.Write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{"a":1}}}`)
	h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"approve":true,"reason":"seen the invoice"}}}`, h.asked()))
	fronttest.Has(t, h.Answer("1"), `"ok"`)
}

// TestVoteThatTheLogRefuses: the submitter of a call cannot approve it, not even at the client. The
// client is told so, and who can approve it; the call continues when it is repeated after that.
func TestVoteThatTheLogRefuses(t *testing.T) {
	w := peopleWorld(t)
	w.log = refusing{w.Local()}
	h := w.start()
	h.elicits()
	h.Write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{}}}`)
	h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"approve":true}}}`, h.asked()))
	fronttest.Has(t, h.Answer("1"), "ESCALATION_REQUIRED", "does not count", "you handed it in", "was not sent", "tgad approve ")
	if n := len(w.Effects()); n != 0 {
		t.Fatalf("%d effects", n)
	}
	if _, err := w.RT.Decide(t.Context(), w.waiting()[0].TraceID, runtime.Vote{Who: "ann", Approve: true, Rationale: "seen the invoice"}); err != nil {
		t.Log("decide:", err)
	}
	fronttest.Has(t, h.Call("2", "charge", `{}`), `"ok"`)
	if n := len(w.Effects()); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
	// That person is not asked again, because the vote would not count.
	h.Write(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"charge","arguments":{"x":1}}}`)
	fronttest.Eventually(t, "the approval", func() bool { return len(w.waiting()) == 1 })
	fronttest.Has(t, h.Ask("4", "echo", `{}`), "result")
	for _, line := range h.Said {
		fronttest.Lacks(t, line, "elicitation")
	}
}

// TestClientIsToldWhoMayApprove: if the log knows that the client's vote does not count, it says so
// before the person is asked. The client is told at once what the call waits for and who can approve
// it: in progress notifications if it asked for them, else in an answer before it gives up.
func TestClientIsToldWhoMayApprove(t *testing.T) {
	w := peopleWorld(t)
	w.log = submitting{w.Local()}
	w.tune = func(s *Shim) { s.patience = 50 * time.Millisecond }
	h := w.start()
	h.elicits()
	said := h.Call("1", "charge", `{}`)
	fronttest.Has(t, said, "ESCALATION_REQUIRED", `\"agent\" submitted the request and cannot approve it`, "payments need a person", "tgad approve ", "was not sent")
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"charge","arguments":{},"_meta":{"progressToken":"p"}}}`
	h.Write(call)
	fronttest.Has(t, h.ReadLine(), "notifications/progress", `\"agent\" submitted the request and cannot approve it`, "tgad approve ")
	for _, p := range w.waiting() {
		if _, err := w.RT.Decide(t.Context(), p.TraceID, runtime.Vote{Who: "agent", Approve: true, Rationale: "seen the invoice"}); !errors.Is(err, tga.PermissionDenied) {
			t.Errorf("the submitter's vote: %v", err)
		}
		if _, err := w.RT.Decide(t.Context(), p.TraceID, runtime.Vote{Who: "ann", Approve: true, Rationale: "seen the invoice"}); err != nil {
			t.Log("decide:", err)
		}
	}
	fronttest.Has(t, h.Answer("2"), `"ok"`)
	for _, line := range h.Said {
		fronttest.Lacks(t, line, "elicitation")
	}
	if n := len(w.Effects()); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
}

// submitting is a log that knows the submitter of a call, as a daemon does.
type submitting struct{ asklog.Log }

func (l submitting) Begin(ctx context.Context, req runtime.BeginRequest) (runtime.Begun, error) {
	req.Submitter = "agent"
	return l.Log.Begin(ctx, req)
}

type refusing struct{ asklog.Log }

func (refusing) Decide(context.Context, tga.ID, wire.DecideRequest) (runtime.Result, error) {
	return runtime.Result{}, tga.Errorf(tga.PermissionDenied, "you handed it in")
}

// TestQuestionInAnAnswer: a client without a handshake is answered with the question, and repeats the
// call with the person's answer, which the tool server does not see.
func TestQuestionInAnAnswer(t *testing.T) {
	w := peopleWorld(t)
	h := w.start()
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`
	h.Ask("7", "echo", `{}`)
	params := `{"name":"charge","arguments":{"n":9007199254740991},` + meta
	first := h.Ask(`"a"`, "tools/call", params+"}")
	fronttest.Has(t, first, `"resultType":"input_required"`, `"tgad-approval":{"method":"elicitation/create"`, `"requestState":"tgad approval `)
	state := mcpraw.ScalarText(mcpraw.At([]byte(first), "/result/requestState"))
	fronttest.Has(t, h.Ask(`"b"`, "tools/call", params+`,"requestState":"tgad approval of mine"}`), `"error"`, "/params/requestState")
	got := h.Ask(`"c"`, "tools/call", params+`,"inputResponses":{"tgad-approval":{"action":"accept","content":{"approve":true}}},"requestState":"`+state+`"}`)
	fronttest.Has(t, got, `"ok"`)
	e := w.Effects()
	if len(e) != 1 {
		t.Fatalf("effects %+v", e)
	}
	fronttest.Lacks(t, e[0].Line, "requestState", "inputResponses")
	fronttest.Has(t, e[0].Line, `"arguments":{"n":9007199254740991}`)
}

// TestPersonWhoSaidNeitherIsAskedAgain: the person is asked once for each repeat of the call, but not
// for the message that brings the answer.
func TestPersonWhoSaidNeitherIsAskedAgain(t *testing.T) {
	w := peopleWorld(t)
	h := w.start()
	h.elicits()
	const neither = `{"jsonrpc":"2.0","id":%s,"result":{"action":"cancel"}}`
	call := func(id string) {
		h.Write(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"charge","arguments":{"a":1},"_meta":{"dev.tgad/idempotencyKey":"k"}}}`)
	}
	call("1")
	first := h.asked()
	call("2") // the question is still on the screen
	fronttest.Has(t, h.Ask("3", "echo", `{}`), "result")
	fronttest.Eventually(t, "the approval", func() bool { return len(w.waiting()) == 1 })
	for _, line := range h.Said {
		fronttest.Lacks(t, line, "elicitation")
	}
	h.Write(fmt.Sprintf(neither, first))
	for i := range 2 {
		call(fmt.Sprint(10 + i))
		h.Write(fmt.Sprintf(neither, h.asked()))
		fronttest.Has(t, h.Ask("4", "echo", `{}`), "result")
	}
	call("20")
	h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"approve":true,"reason":"seen the invoice"}}}`, h.asked()))
	for _, id := range []string{"1", "2", "10", "11", "20"} {
		fronttest.Has(t, h.Answer(id), `"ok"`)
	}
	if n := len(w.Effects()); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// TestTaskWhoseApprovalIsAskedForAgain: a client that has a task of the call and makes the call again
// is asked once more. Its person's answer counts for the task.
func TestTaskWhoseApprovalIsAskedForAgain(t *testing.T) {
	w := peopleWorld(t)
	h := w.start()
	h.Handshake()
	meta := strings.Replace(tasksMeta, `{"extensions"`, `{"elicitation":{},"extensions"`, 1)
	h.Ask("7", "echo", `{}`)
	params := `{"name":"charge","arguments":{"a":1},"_meta":` + meta
	question := func(id string) (state string) {
		t.Helper()
		got := h.Ask(id, "tools/call", params+"}")
		fronttest.Has(t, got, `"resultType":"input_required"`, `"tgad-approval":{"method":"elicitation/create"`)
		return mcpraw.ScalarText(mcpraw.At([]byte(got), "/result/requestState"))
	}
	says := func(id, state, action string) string {
		t.Helper()
		return h.Ask(id, "tools/call", params+`,"inputResponses":{"tgad-approval":`+action+`},"requestState":"`+state+`"}`)
	}
	state := question(`"a"`)
	task := taskID(t, says(`"b"`, state, `{"action":"cancel"}`)) // this message does not ask again
	for i := range 2 {
		if again := question(fmt.Sprint(10 + i)); again != state {
			t.Errorf("another question: %s, and was %s", again, state)
		}
		if other := taskID(t, says(fmt.Sprint(20+i), state, `{"action":"cancel"}`)); other != task {
			t.Errorf("another task: %s, and was %s", other, task)
		}
	}
	question("30")
	says("31", state, `{"action":"accept","content":{"approve":true,"reason":"seen the invoice"}}`)
	fronttest.Has(t, h.comesTo(task, "completed"), `"text":"ok"`)
	if n := len(w.Effects()); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// TestQuestionIsForWhoCanAnswerIt: of two clients of one call, the client that can be asked is asked,
// and the other waits.
func TestQuestionIsForWhoCanAnswerIt(t *testing.T) {
	w := peopleWorld(t)
	h := w.start()
	h.Handshake()
	key := `"dev.tgad/idempotencyKey":"k"`
	able := strings.Replace(fronttest.ModernMeta, `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}},`+key, 1)
	h.Write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{},"_meta":` + able + `}}`)
	fronttest.Has(t, h.Answer("1"), "input_required")
	h.Write(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"charge","arguments":{},"_meta":{` + key + `}}}`)
	fronttest.Eventually(t, "the call that waits", func() bool { return len(h.s.Underway()) == 1 })
	fronttest.Has(t, h.Call("3", "charge", `{}`, able), "input_required")
	if _, err := w.RT.Decide(t.Context(), w.waiting()[0].TraceID, runtime.Vote{Who: "boss", Approve: true, Rationale: "seen the invoice"}); err != nil {
		t.Log("decide:", err)
	}
	fronttest.Has(t, h.Answer("2"), `"ok"`)
	if n := len(w.Effects()); n != 1 {
		t.Errorf("%d effects", n)
	}
}
