package mcpfront

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// tasksMeta is what a client says with each request that may become a task.
const tasksMeta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// taskID reads the id of a task from the answer to a call.
func taskID(t *testing.T, answer string) string {
	t.Helper()
	has(t, answer, `"resultType":"task"`, `"status":"working"`, `"ttlMs":`, `"pollIntervalMs":`, `"createdAt":"`)
	id := mcpraw.ScalarText(mcpraw.At([]byte(answer), "/result/taskId"))
	if !strings.HasPrefix(id, ownTaskPrefix) {
		t.Fatalf("the task's id is %q", id)
	}
	return id
}

func aboutTask(id string) string { return fmt.Sprintf(`{"taskId":%q,"_meta":%s}`, id, tasksMeta) }

func (h *shim) task(id string) string {
	h.t.Helper()
	return h.ask(`"about"`, "tasks/get", aboutTask(id))
}

// comesTo asks about a task until it has a status.
func (h *shim) comesTo(id, status string) (answer string) {
	h.t.Helper()
	eventually(h.t, "the status "+status, func() bool {
		answer = h.task(id)
		has(h.t, answer, `"resultType":"complete"`)
		return strings.Contains(answer, `"status":"`+status+`"`)
	})
	return answer
}

func (w *world) gate() (path, arg string, open func()) {
	path = filepath.Join(w.dir, "gate")
	return path, fmt.Sprintf(`{"wait":%q}`, path), func() {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) keptTask(id string) (rec taskRecord, found bool) {
	w.t.Helper()
	for k, err := range w.rt.Kept(w.t.Context(), "", "fake", "") {
		if err != nil {
			w.t.Fatal(err)
		}
		if k.Name == taskName+strings.TrimPrefix(id, ownTaskPrefix) {
			if err := json.Unmarshal(k.Value, &rec); err != nil {
				w.t.Fatal(err)
			}
			return rec, true
		}
	}
	return rec, false
}

func TestOwnTask(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.handshake()
	_, arg, open := w.gate()
	id := taskID(t, h.call("1", "charge", arg, tasksMeta))
	if _, found := w.keptTask(id); !found {
		t.Error("the client has the id of a task that is not in the store")
	}
	has(t, h.task(id), `"status":"working"`)
	if other := taskID(t, h.call("2", "charge", arg, tasksMeta)); other != id {
		t.Errorf("the same call again is task %s, and was %s", other, id)
	}
	open()
	done := h.comesTo(id, "completed")
	has(t, done, `"result":{"content":[{"type":"text","text":"ok"}]`, `9007199254740993,"one":1.0`)
	lacks(t, done, "replayed")
	has(t, h.task(id), `"status":"completed"`, `"text":"ok"`)
	if n := len(w.effects()); n != 1 {
		t.Fatalf("%d effects", n)
	}
	// Its end was delivered: the same call is another one, and does not disturb the first.
	next := h.call("3", "charge", arg, tasksMeta)
	lacks(t, next, "replayed", id)
	eventually(t, "the second effect", func() bool { return len(w.effects()) == 2 })
	if strings.Contains(next, `"resultType":"task"`) {
		h.comesTo(taskID(t, next), "completed") // delivered too: a third would be sent
	}
	_ = h.stop()
	h = w.start()
	h.handshake()
	has(t, h.task(id), `"status":"completed"`, `"dev.tgad/replayed":true`, `"dev.tgad/traceId":"`+strings.TrimPrefix(id, ownTaskPrefix))
	if n := len(w.effects()); n != 2 {
		t.Errorf("%d effects: asking about a task has sent it", n)
	}
}

// TestOwnTaskEnds: a result that says isError completes a task, a JSON-RPC error fails it.
func TestOwnTaskEnds(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.handshake()
	path, arg, open := w.gate()
	for i, c := range []struct{ tool, status, said string }{
		{"fail", "completed", `"result":{"content":[{"type":"text","text":"no money"}],"isError":true}`},
		{"fault", "failed", `"error":{"code":-32050,"message":"broken"}`},
	} {
		id := taskID(t, h.call(fmt.Sprint(i+1), c.tool, arg, tasksMeta))
		open()
		has(t, h.comesTo(id, c.status), c.said)
		has(t, h.task(id), `"status":"`+c.status+`"`)
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
			if err := os.WriteFile(w.journal+".discover", []byte(c.discover), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		h := w.start()
		h.handshake()
		if c.asks {
			if got := h.ask("7", "server/discover", `{}`); got != `{"jsonrpc":"2.0","id":7,"result":`+c.says+`}` {
				t.Errorf("%+v: discovered %s", c, got)
			}
		}
		_, arg, open := w.gate()
		h.write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":` + arg + `,"_meta":` + c.meta + `}}`)
		if c.task {
			taskID(t, h.answer("1"))
			open()
		} else {
			eventually(t, "the call", func() bool { return len(w.effects()) == 1 })
			open()
			has(t, h.answer("1"), `"text":"ok"`)
		}
		_ = h.stop()
	}
}

func TestOwnTasksRefusals(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.handshake()
	_, arg, open := w.gate()
	id := taskID(t, h.call("1", "charge", arg, tasksMeta))
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		has(t, h.ask("2", method, fmt.Sprintf(`{"taskId":%q}`, id)), `"code":-32021`, `"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
		for _, none := range []string{ownTaskPrefix + "x", ownTaskPrefix + newID().String()} {
			has(t, h.ask("3", method, aboutTask(none)), `"code":-32602`, "NOT_FOUND")
		}
	}
	open()
	h.comesTo(id, "completed")
	// A trace that was never a task is none, whoever knows its id.
	direct := h.call("4", "charge", `{"b":1}`)
	has(t, direct, `"ok"`)
	name := w.record("charge", w.effects()[1].Key).TraceID.String()
	has(t, h.task(ownTaskPrefix+name), `"code":-32602`)
	// A read call has no key that a later shim could find it by: it makes no task.
	has(t, h.call("5", "look", `{}`, tasksMeta), `"text":"ok"`)
}

func TestOwnTaskIsCancelled(t *testing.T) {
	w := peopleWorld(t)
	w.opts.CancelGrace = time.Millisecond
	h := w.start()
	h.handshake()
	// One that waits for people is not sent, not even when they approve it later.
	id := taskID(t, h.call("1", "charge", `{"a":1}`, tasksMeta))
	has(t, h.ask("2", "tasks/cancel", aboutTask(id)), `"result":{"resultType":"complete"}`)
	has(t, h.comesTo(id, "cancelled"), "not sent")
	all := w.waiting()
	if len(all) != 1 {
		t.Fatalf("approvals %+v", all)
	}
	if _, err := w.rt.Decide(t.Context(), all[0].TraceID, runtime.Vote{Who: "boss", Approve: true, Rationale: "approved too late"}); err != nil && tga.CodeOf(err) != tga.IdempotencyKeyInFlight {
		t.Fatal(err)
	}
	has(t, h.task(id), `"status":"cancelled"`)
	if n := len(w.effects()); n != 0 {
		t.Errorf("%d effects of a cancelled task", n)
	}
	// One that was sent may have run; an answer that comes late ends the doubt.
	_, arg, open := w.gate()
	id = taskID(t, h.call("3", "again", arg, tasksMeta))
	eventually(t, "the call", func() bool { return len(w.effects()) == 1 })
	h.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
	has(t, h.task(id), `"status":"working"`) // that notice is about requests
	has(t, h.ask("4", "tasks/cancel", aboutTask(id)), `"result":{"resultType":"complete"}`)
	has(t, h.comesTo(id, "completed"), "OUTCOME UNKNOWN", "EFFECT_IN_DOUBT", `"isError":true`)
	open()
	eventually(t, "the late answer", func() bool { return strings.Contains(h.task(id), `"text":"ok"`) })
	if n := len(w.effects()); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// TestOwnTaskCancelledBeforeACrash: the shim that follows does not send it either.
func TestOwnTaskCancelledBeforeACrash(t *testing.T) {
	w := peopleWorld(t)
	h := w.start()
	h.handshake()
	id := taskID(t, h.call("1", "charge", `{"a":1}`, tasksMeta))
	has(t, h.ask("2", "tasks/cancel", aboutTask(id)), `"complete"`)
	_ = h.stop()
	if _, err := w.rt.Decide(t.Context(), w.waiting()[0].TraceID, runtime.Vote{Who: "boss", Approve: true, Rationale: "approved too late"}); err != nil && tga.CodeOf(err) != tga.IdempotencyKeyInFlight {
		t.Fatal(err)
	}
	h = w.start()
	h.handshake()
	h.comesTo(id, "cancelled")
	if n := len(w.effects()); n != 0 {
		t.Errorf("%d effects of a cancelled task", n)
	}
}

// TestOwnTaskWaitsForApproval: over a restart, and is then sent once.
func TestOwnTaskWaitsForApproval(t *testing.T) {
	w := peopleWorld(t)
	h := w.start()
	h.handshake()
	id := taskID(t, h.call("1", "charge", `{"a":1}`, tasksMeta))
	has(t, h.task(id), `"status":"working"`, "tgad approve")
	_ = h.stop()
	h = w.start()
	h.handshake()
	has(t, h.task(id), `"status":"working"`, "tgad approve")
	if _, err := w.rt.Decide(t.Context(), w.waiting()[0].TraceID, runtime.Vote{Who: "boss", Approve: true, Rationale: "seen the invoice"}); err != nil && tga.CodeOf(err) != tga.IdempotencyKeyInFlight {
		t.Fatal(err)
	}
	h.comesTo(id, "completed")
	has(t, h.task(id), `"text":"ok"`)
	if e := w.effects(); len(e) != 1 || e[0].Args != `{"a":1}` {
		t.Errorf("effects %+v", e)
	}
}

// crowded is a log that keeps many tasks of other clients.
type crowded struct {
	local
	tasks int
}

func (l crowded) Kept(ctx context.Context, namespace, server string) iter.Seq2[runtime.Kept, error] {
	return func(yield func(runtime.Kept, error) bool) {
		value := fmt.Appendf(nil, `{"created":%q}`, time.Now().UTC().Format(time.RFC3339))
		for n := range l.tasks {
			if !yield(runtime.Kept{Name: taskName + fmt.Sprint(n), Value: value}, nil) {
				return
			}
		}
		l.local.Kept(ctx, namespace, server)(yield)
	}
}

func TestOwnTaskWantsInput(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWorld(t)
		h := w.start()
		h.handshake()
		id := ""
		answer := h.call("1", "input", `{"a":1}`, strings.Replace(tasksMeta, "{", `{"dev.tgad/idempotencyKey":"k",`, 1))
		if !strings.Contains(answer, `"resultType":"task"`) {
			// The tool server was quicker than the note: the answer is the question itself.
			has(t, answer, `"resultType":"input_required"`)
			continue
		}
		id = taskID(t, answer)
		has(t, h.comesTo(id, "input_required"), `"inputRequests":{}`)
		if restart {
			_ = h.stop()
			h = w.start()
			h.handshake()
			has(t, h.comesTo(id, "input_required"), `"inputRequests":{}`)
		}
		about := strings.Replace(aboutTask(id), "{", `{"inputResponses":{"x":9007199254740993},`, 1)
		has(t, h.ask("2", "tasks/update", about), `"result":{"resultType":"complete"}`)
		h.comesTo(id, "completed")
		has(t, h.ask("3", "tasks/update", about), `"result":{"resultType":"complete"}`) // what is not asked for does nothing
		e := w.effects()
		if len(e) != 1 || e[0].Key != "k" {
			t.Fatalf("effects %+v", e)
		}
		has(t, e[0].Line, `"inputResponses":{"x":9007199254740993}`, `"requestState":"s1"`)
		_ = h.stop()
	}
}

func TestOwnTaskLimits(t *testing.T) {
	w := newWorld(t)
	path, _, open := w.gate()
	defer open()
	call := func(h *shim, id string, pad int) {
		h.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"charge","arguments":{"wait":%q,"pad":"%s"},"_meta":%s}}`,
			id, path, strings.Repeat("x", pad), tasksMeta))
	}
	h := w.start()
	h.handshake()
	// The params of a task are kept: at the length that is kept, and one past it.
	empty := len(fmt.Sprintf(`{"name":"charge","arguments":{"wait":%q,"pad":""},"_meta":%s}`, path, tasksMeta))
	call(h, "1", maxLeg-empty)
	old := taskID(t, h.answer("1"))
	call(h, "2", maxLeg-empty+1)
	open()
	has(t, h.answer("2"), `"text":"ok"`)
	h.comesTo(old, "completed")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	// As many tasks as are kept, and one more.
	_ = h.stop()
	w.log = crowded{local{w.rt}, maxOwnTasks - 2} // and the one above
	h = w.start()
	h.handshake()
	call(h, "3", 1)
	taskID(t, h.answer("3"))
	call(h, "4", 2)
	open()
	has(t, h.answer("4"), `"text":"ok"`)
	_ = h.stop()
	w.log = nil

	// A task can be asked about for so long, and is then struck out.
	age := func(by time.Duration) {
		t.Helper()
		rec, _ := w.keptTask(old)
		was, _ := json.Marshal(rec)
		rec.Created = time.Now().Add(-taskLife + by).UTC()
		now, _ := json.Marshal(rec)
		if _, changed, err := w.rt.Keep(t.Context(), runtime.KeepRequest{Server: "fake", Name: taskName + rec.Trace, Old: was, Value: now}); err != nil || !changed {
			t.Fatal(changed, err)
		}
	}
	age(time.Hour)
	h = w.start()
	h.handshake()
	has(t, h.task(old), `"status":"completed"`)
	_ = h.stop()
	age(-time.Second)
	h = w.start()
	h.handshake()
	has(t, h.task(old), `"code":-32602`)
	eventually(t, "the old task struck out", func() bool { _, found := w.keptTask(old); return !found })
}
