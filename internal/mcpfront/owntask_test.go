package mcpfront

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/owntask"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// tasksMeta is the `_meta` of a client that understands tasks.
const tasksMeta = fronttest.TasksMeta

// taskID reads the id of a task from the answer to a call.
func taskID(t *testing.T, answer string) string {
	t.Helper()
	fronttest.Has(t, answer, `"resultType":"task"`, `"status":"working"`, `"ttlMs":`, `"pollIntervalMs":`, `"createdAt":"`)
	id := mcpraw.ScalarText(mcpraw.At([]byte(answer), "/result/taskId"))
	if !strings.HasPrefix(id, owntask.Prefix) {
		t.Fatalf("the task's id is %q", id)
	}
	return id
}

func aboutTask(id string) string { return fmt.Sprintf(`{"taskId":%q,"_meta":%s}`, id, tasksMeta) }

func (h *shim) task(id string) string {
	h.T.Helper()
	return h.Ask(`"about"`, "tasks/get", aboutTask(id))
}

// comesTo asks about a task until it has the given status.
func (h *shim) comesTo(id, status string) (answer string) {
	h.T.Helper()
	fronttest.Eventually(h.T, "the status "+status, func() bool {
		answer = h.task(id)
		fronttest.Has(h.T, answer, `"resultType":"complete"`)
		return strings.Contains(answer, `"status":"`+status+`"`)
	})
	return answer
}

func (w *world) gate() (path, arg string, open func()) {
	path = filepath.Join(w.Dir, "gate")
	return path, fmt.Sprintf(`{"wait":%q}`, path), func() {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			w.T.Fatal(err)
		}
	}
}

func (w *world) keptTask(id string) (rec owntask.Record, found bool) {
	w.T.Helper()
	for k, err := range w.RT.Kept(w.T.Context(), "", "fake", "") {
		if err != nil {
			w.T.Fatal(err)
		}
		if k.Name == owntask.Shelf+strings.TrimPrefix(id, owntask.Prefix) {
			if err := json.Unmarshal(k.Value, &rec); err != nil {
				w.T.Fatal(err)
			}
			return rec, true
		}
	}
	return rec, false
}

func TestOwnTask(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	_, arg, open := w.gate()
	id := taskID(t, h.Call("1", "charge", arg, tasksMeta))
	if _, found := w.keptTask(id); !found {
		t.Error("the client has the id of a task that is not in the store")
	}
	fronttest.Has(t, h.task(id), `"status":"working"`)
	if other := taskID(t, h.Call("2", "charge", arg, tasksMeta)); other != id {
		t.Errorf("the same call again is task %s, and was %s", other, id)
	}
	open()
	done := h.comesTo(id, "completed")
	fronttest.Has(t, done, `"result":{"content":[{"type":"text","text":"ok"}]`, `9007199254740993,"one":1.0`)
	fronttest.Lacks(t, done, "replayed")
	fronttest.Has(t, h.task(id), `"status":"completed"`, `"text":"ok"`)
	if n := len(w.Effects()); n != 1 {
		t.Fatalf("%d effects", n)
	}
	// The task's end was delivered, so the same call is a new call and does not affect the first.
	next := h.Call("3", "charge", arg, tasksMeta)
	fronttest.Lacks(t, next, "replayed", id)
	fronttest.Eventually(t, "the second effect", func() bool { return len(w.Effects()) == 2 })
	if strings.Contains(next, `"resultType":"task"`) {
		h.comesTo(taskID(t, next), "completed") // delivered too, so a third call would be sent
	}
	_ = h.Stop()
	h = w.start()
	h.Handshake()
	fronttest.Has(t, h.task(id), `"status":"completed"`, `"dev.tgad/replayed":true`, `"dev.tgad/traceId":"`+strings.TrimPrefix(id, owntask.Prefix))
	if n := len(w.Effects()); n != 2 {
		t.Errorf("%d effects: asking about a task has sent it", n)
	}
}

// TestOwnTaskEnds: a result that says isError completes a task, a JSON-RPC error fails it.
func TestOwnTaskEnds(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	path, arg, open := w.gate()
	for i, c := range []struct{ tool, status, said string }{
		{"fail", "completed", `"result":{"content":[{"type":"text","text":"no money"}],"isError":true}`},
		{"fault", "failed", `"error":{"code":-32050,"message":"broken"}`},
	} {
		id := taskID(t, h.Call(fmt.Sprint(i+1), c.tool, arg, tasksMeta))
		open()
		fronttest.Has(t, h.comesTo(id, c.status), c.said)
		fronttest.Has(t, h.task(id), `"status":"`+c.status+`"`)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOwnTasksAreForWhoDeclaresThem(t *testing.T) {
	const theirs, without = `{"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}},"tools":{}}}`, `{"capabilities":{"tools":{}}}`
	ours := `"extensions":{"io.modelcontextprotocol/tasks":{}}`
	for _, c := range []struct {
		mode     TaskMode
		discover string // "" = there is no such method
		asks     bool   // the client discovers
		meta     string
		task     bool
		says     string
	}{
		{TasksAuto, "", false, tasksMeta, true, ""},
		{TasksAuto, "", false, `{}`, false, ""},
		{TasksAuto, "", false, strings.Replace(tasksMeta, "2026-07-28", "2025-11-25", 1), false, ""},
		{TasksAuto, without, true, tasksMeta, true, `{"capabilities":{` + ours + `,"tools":{}}}`},
		{TasksAuto, `{"capabilities":{"extensions":{"x":{}}}}`, true, tasksMeta, true, `{"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{},"x":{}}}}`},
		{TasksAuto, `{}`, true, tasksMeta, true, `{"capabilities":{` + ours + `}}`},
		{TasksAuto, theirs, true, tasksMeta, false, theirs},
		{TasksAuto, theirs, false, tasksMeta, false, ""},
		{TasksOn, theirs, false, tasksMeta, true, ""},
		{TasksOff, without, true, tasksMeta, false, without},
	} {
		w := newWorld(t)
		w.opts.Tasks = c.mode
		if c.discover != "" {
			if err := os.WriteFile(w.Journal+".discover", []byte(c.discover), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		h := w.start()
		h.Handshake()
		if c.asks {
			if got := h.Ask("7", "server/discover", `{}`); got != `{"jsonrpc":"2.0","id":7,"result":`+c.says+`}` {
				t.Errorf("%+v: discovered %s", c, got)
			}
		}
		_, arg, open := w.gate()
		h.Write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":` + arg + `,"_meta":` + c.meta + `}}`)
		if c.task {
			taskID(t, h.Answer("1"))
			open()
		} else {
			fronttest.Eventually(t, "the call", func() bool { return len(w.Effects()) == 1 })
			open()
			fronttest.Has(t, h.Answer("1"), `"text":"ok"`)
		}
		_ = h.Stop()
	}
}

func TestOwnTasksRefusals(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	_, arg, open := w.gate()
	id := taskID(t, h.Call("1", "charge", arg, tasksMeta))
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		fronttest.Has(t, h.Ask("2", method, fmt.Sprintf(`{"taskId":%q}`, id)), `"code":-32021`, `"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
		for _, none := range []string{owntask.Prefix + "x", owntask.Prefix + attempt.NewID().String()} {
			fronttest.Has(t, h.Ask("3", method, aboutTask(none)), `"code":-32602`, "NOT_FOUND")
		}
	}
	open()
	h.comesTo(id, "completed")
	// The id of a trace that was never a task is not the id of a task.
	direct := h.Call("4", "charge", `{"b":1}`)
	fronttest.Has(t, direct, `"ok"`)
	name := w.Record("charge", w.Effects()[1].Key).TraceID.String()
	fronttest.Has(t, h.task(owntask.Prefix+name), `"code":-32602`)
	// A read call has no key by which a later shim could find it, so it makes no task.
	fronttest.Has(t, h.Call("5", "look", `{}`, tasksMeta), `"text":"ok"`)
}

func TestOwnTaskIsCancelled(t *testing.T) {
	w := peopleWorld(t)
	w.opts.CancelGrace = time.Millisecond
	h := w.start()
	h.Handshake()
	// A cancelled task that waits for people is not sent, even if they approve it later.
	id := taskID(t, h.Call("1", "charge", `{"a":1}`, tasksMeta))
	fronttest.Has(t, h.Ask("2", "tasks/cancel", aboutTask(id)), `"result":{"resultType":"complete"}`)
	fronttest.Has(t, h.comesTo(id, "cancelled"), "not sent")
	all := w.waiting()
	if len(all) != 1 {
		t.Fatalf("approvals %+v", all)
	}
	if _, err := w.RT.Decide(t.Context(), all[0].TraceID, runtime.Vote{Who: "boss", Approve: true, Rationale: "approved too late"}); err != nil && tga.CodeOf(err) != tga.IdempotencyKeyInFlight {
		t.Fatal(err)
	}
	fronttest.Has(t, h.task(id), `"status":"cancelled"`)
	if n := len(w.Effects()); n != 0 {
		t.Errorf("%d effects of a cancelled task", n)
	}
	// A cancelled task that was sent may have run. A late answer ends the doubt.
	_, arg, open := w.gate()
	id = taskID(t, h.Call("3", "again", arg, tasksMeta))
	fronttest.Eventually(t, "the call", func() bool { return len(w.Effects()) == 1 })
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
	fronttest.Has(t, h.task(id), `"status":"working"`) // notifications/cancelled does not cancel a task
	fronttest.Has(t, h.Ask("4", "tasks/cancel", aboutTask(id)), `"result":{"resultType":"complete"}`)
	fronttest.Has(t, h.comesTo(id, "completed"), "OUTCOME UNKNOWN", "EFFECT_IN_DOUBT", `"isError":true`)
	open()
	fronttest.Eventually(t, "the late answer", func() bool { return strings.Contains(h.task(id), `"text":"ok"`) })
	if n := len(w.Effects()); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// TestOwnTaskCancelledBeforeACrash: the next shim does not send a cancelled task either.
func TestOwnTaskCancelledBeforeACrash(t *testing.T) {
	w := peopleWorld(t)
	h := w.start()
	h.Handshake()
	id := taskID(t, h.Call("1", "charge", `{"a":1}`, tasksMeta))
	fronttest.Has(t, h.Ask("2", "tasks/cancel", aboutTask(id)), `"complete"`)
	_ = h.Stop()
	if _, err := w.RT.Decide(t.Context(), w.waiting()[0].TraceID, runtime.Vote{Who: "boss", Approve: true, Rationale: "approved too late"}); err != nil && tga.CodeOf(err) != tga.IdempotencyKeyInFlight {
		t.Fatal(err)
	}
	h = w.start()
	h.Handshake()
	h.comesTo(id, "cancelled")
	if n := len(w.Effects()); n != 0 {
		t.Errorf("%d effects of a cancelled task", n)
	}
}

// TestOwnTaskWaitsForApproval: a task waits for its approval across a restart, and is then sent once.
func TestOwnTaskWaitsForApproval(t *testing.T) {
	w := peopleWorld(t)
	h := w.start()
	h.Handshake()
	id := taskID(t, h.Call("1", "charge", `{"a":1}`, tasksMeta))
	fronttest.Has(t, h.task(id), `"status":"working"`, "tgad approve")
	_ = h.Stop()
	h = w.start()
	h.Handshake()
	fronttest.Has(t, h.task(id), `"status":"working"`, "tgad approve")
	if _, err := w.RT.Decide(t.Context(), w.waiting()[0].TraceID, runtime.Vote{Who: "boss", Approve: true, Rationale: "seen the invoice"}); err != nil && tga.CodeOf(err) != tga.IdempotencyKeyInFlight {
		t.Fatal(err)
	}
	h.comesTo(id, "completed")
	fronttest.Has(t, h.task(id), `"text":"ok"`)
	if e := w.Effects(); len(e) != 1 || e[0].Args != `{"a":1}` {
		t.Errorf("effects %+v", e)
	}
}

// crowded is a log that has many tasks of other clients.
type crowded struct {
	fronttest.Local
	tasks int
}

func (l crowded) Kept(ctx context.Context, namespace, server string) iter.Seq2[runtime.Kept, error] {
	return func(yield func(runtime.Kept, error) bool) {
		value := fmt.Appendf(nil, `{"created":%q}`, time.Now().UTC().Format(time.RFC3339))
		for n := range l.tasks {
			if !yield(runtime.Kept{Name: owntask.Shelf + fmt.Sprint(n), Value: value}, nil) {
				return
			}
		}
		l.Local.Kept(ctx, namespace, server)(yield)
	}
}

// taskForInput makes a call with a key, k, whose tool server wants input once the call has a task.
func (w *world) taskForInput(h *shim) (id string) {
	w.T.Helper()
	_, args, open := w.gate()
	id = taskID(w.T, h.Call("1", "input", args, strings.Replace(tasksMeta, "{", `{"dev.tgad/idempotencyKey":"k",`, 1)))
	open()
	return id
}

func TestOwnTaskWantsInput(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWorld(t)
		h := w.start()
		h.Handshake()
		id := w.taskForInput(h)
		fronttest.Has(t, h.comesTo(id, "input_required"), `"inputRequests":{}`)
		if restart {
			_ = h.Stop()
			h = w.start()
			h.Handshake()
			fronttest.Has(t, h.comesTo(id, "input_required"), `"inputRequests":{}`)
		}
		about := strings.Replace(aboutTask(id), "{", `{"inputResponses":{"x":9007199254740993},`, 1)
		fronttest.Has(t, h.Ask("2", "tasks/update", about), `"result":{"resultType":"complete"}`)
		h.comesTo(id, "completed")
		fronttest.Has(t, h.Ask("3", "tasks/update", about), `"result":{"resultType":"complete"}`) // what is not asked for does nothing
		e := w.Effects()
		if len(e) != 1 || e[0].Key != "k" {
			t.Fatalf("effects %+v", e)
		}
		fronttest.Has(t, e[0].Line, `"inputResponses":{"x":9007199254740993}`, `"requestState":"s1"`)
		_ = h.Stop()
	}
}

// TestCancelledTaskGetsNoInput: a task wants input, the client cancels it, and then gives the input. The tool server does
// not get it.
func TestCancelledTaskGetsNoInput(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	id := w.taskForInput(h)
	h.comesTo(id, "input_required")
	fronttest.Has(t, h.Ask("2", "tasks/cancel", aboutTask(id)), `"result":{"resultType":"complete"}`)
	h.Ask("3", "tasks/update", strings.Replace(aboutTask(id), "{", `{"inputResponses":{"x":1},`, 1))
	fronttest.Has(t, h.comesTo(id, "completed"), "OUTCOME UNKNOWN", "EFFECT_IN_DOUBT")
	if e := w.Effects(); len(e) != 0 {
		t.Errorf("effects %+v", e)
	}
}

func TestOwnTaskLimits(t *testing.T) {
	w := newWorld(t)
	path, _, open := w.gate()
	defer open()
	call := func(h *shim, id string, pad int) {
		h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"charge","arguments":{"wait":%q,"pad":"%s"},"_meta":%s}}`,
			id, path, strings.Repeat("x", pad), tasksMeta))
	}
	h := w.start()
	h.Handshake()
	// The params of a task are kept: at the longest length, and one byte longer.
	empty := len(fmt.Sprintf(`{"name":"charge","arguments":{"wait":%q,"pad":""},"_meta":%s}`, path, tasksMeta))
	call(h, "1", attempt.MaxLeg-empty)
	old := taskID(t, h.Answer("1"))
	call(h, "2", attempt.MaxLeg-empty+1)
	open()
	fronttest.Has(t, h.Answer("2"), `"text":"ok"`)
	h.comesTo(old, "completed")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	// As many tasks as are kept, and one more.
	_ = h.Stop()
	w.log = crowded{w.Local(), owntask.Most - 2} // and the one above
	h = w.start()
	h.Handshake()
	call(h, "3", 1)
	taskID(t, h.Answer("3"))
	call(h, "4", 2)
	open()
	fronttest.Has(t, h.Answer("4"), `"text":"ok"`)
	_ = h.Stop()
	w.log = nil

	// A task can be asked about for Life, and its record is then removed.
	age := func(by time.Duration) {
		t.Helper()
		rec, _ := w.keptTask(old)
		was, _ := json.Marshal(rec)
		rec.Created = time.Now().Add(-owntask.Life + by).UTC()
		now, _ := json.Marshal(rec)
		if _, changed, err := w.RT.Keep(t.Context(), runtime.KeepRequest{Server: "fake", Name: owntask.Shelf + rec.Trace, Old: was, Value: now}); err != nil || !changed {
			t.Fatal(changed, err)
		}
	}
	age(time.Hour)
	h = w.start()
	h.Handshake()
	fronttest.Has(t, h.task(old), `"status":"completed"`)
	_ = h.Stop()
	age(-time.Second)
	h = w.start()
	h.Handshake()
	fronttest.Has(t, h.task(old), `"code":-32602`)
	fronttest.Eventually(t, "the old task struck out", func() bool { _, found := w.keptTask(old); return !found })
}

// noteless is a log that keeps no records of tasks.
type noteless struct{ asklog.Log }

func (l noteless) Keep(ctx context.Context, r runtime.KeepRequest) (runtime.Kept, bool, error) {
	if strings.HasPrefix(r.Name, owntask.Shelf) && r.Value != nil {
		return runtime.Kept{}, false, tga.Errorf(tga.LimitExceeded, "no")
	}
	return l.Log.Keep(ctx, r)
}

// TestClientWithoutItsTaskIsThere: a task cannot be noted, so its client waits for the call's own answer. The log still sees that client:
// another client's identical call is another call.
func TestClientWithoutItsTaskIsThere(t *testing.T) {
	srv := newStrict(t)
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	srv.handle["tools/call"] = func(e *exchanged) {
		<-gate
		e.result(`"resultType":"complete","content":[{"type":"text","text":"ok"}]`)
	}
	w := newWorld(t)
	w.opts.URL, w.log = srv.URL, noteless{w.Local()}
	url := w.listening()
	answers := make(chan string, 2)
	for n := 1; n <= 2; n++ {
		body, h := fronttest.Modern("7", "tools/call", `"name":"charge","arguments":{}`, "Mcp-Name", "charge")
		body = strings.Replace(body, fronttest.ModernMeta, tasksMeta, 1)
		go func() {
			_, got, err := fronttest.TryPost(url, body, h...)
			answers <- fmt.Sprint(got, err)
		}()
		fronttest.Eventually(t, "a send of its own", func() bool { return srv.count("tools/call") == n })
		time.Sleep(50 * time.Millisecond) // the task is made after the send, or not
	}
	open()
	for range 2 {
		fronttest.Has(t, <-answers, `"ok"`)
	}
}
