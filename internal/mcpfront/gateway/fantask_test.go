package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/internal/mcpfront/subject"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// taskNames makes the names of tasks of an identity, with the secret of a directory.
func taskNames(t testing.TB, dir, identity string) names.Tasks {
	t.Helper()
	secret, err := subject.ReadSecret(dir)
	if err != nil {
		t.Fatal(err)
	}
	return names.Tasks{Of: identity, Seal: func(text string) string { return secret.Seal(SealOfTasks, text) }}
}

// gatedAs is a gateway of one identity, for a client on stdin.
func (w *world) gatedAs(identity string, all ...Behind) *shim {
	w.T.Helper()
	g, err := NewGate(all, GateOptions{Logger: w.opts.Logger, Tasks: taskNames(w.T, filepath.Join(w.Dir, "state"), identity)})
	if err != nil {
		w.T.Fatal(err)
	}
	return w.wire(g.Stdio)
}

// taskID returns the task's id in an answer.
func taskID(t *testing.T, answer string) string {
	t.Helper()
	id := mcpraw.ScalarText(mcpraw.At([]byte(answer), "/result/taskId"))
	if id == "" || strings.HasPrefix(id, "job-") {
		t.Fatalf("the task of %s", answer)
	}
	return id
}

func (w *world) done(server string) {
	w.T.Helper()
	if err := os.WriteFile(w.JournalOf(server)+".taskdone", nil, 0o600); err != nil {
		w.T.Fatal(err)
	}
}

// TestTasksLeadToTheirServers: two tool servers have given the same id. A question about a task goes to the task's own
// server, even from a gateway that was started since, and the log has the tool servers' own ids.
func TestTasksLeadToTheirServers(t *testing.T) {
	w := newWorld(t)
	behind := func() []Behind { return []Behind{w.behind("a", names.Names{}), w.behind("b", names.Names{})} }
	h := w.gatedAs("ann", behind()...)
	h.Greet()
	ids := map[string]string{}
	for i, server := range []string{"a", "b"} {
		answer := h.Call(fmt.Sprint(i+1), server+"__job", `{"n":7}`)
		ids[server] = taskID(t, answer)
		fronttest.Has(t, h.Call("9", server+"__job", `{"n":7}`), `"taskId":"`+ids[server]+`"`, "replayed")
	}
	if ids["a"] == ids["b"] {
		t.Fatalf("ids %v", ids)
	}
	get := func(h *shim, id string) string { return h.Ask("5", "tasks/get", `{"taskId":"`+id+`"}`) }
	for _, id := range ids {
		fronttest.Has(t, get(h, id), `"taskId":"`+id+`"`, "working")
	}
	for server, id := range ids {
		for _, method := range []string{"tasks/cancel", "tasks/update", "tasks/result"} {
			got := h.Ask("6", method, `{"taskId":"`+id+`","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}},"x":1.0}`)
			fronttest.Has(t, got, `"by":"`+server+`"`, `"params":{"taskId":"job-7","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"job-7"}},"x":1.0}`,
				`"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}}`)
		}
	}
	_ = h.Stop()
	h = w.gatedAs("ann", behind()...)
	h.Greet()
	fronttest.Has(t, get(h, ids["b"]), `"taskId":"`+ids["b"]+`"`, "working")
	w.done("a")
	fronttest.Eventually(t, "the end of a's task", func() bool { return strings.Contains(get(h, ids["a"]), "job done") })
	fronttest.Has(t, get(h, ids["b"]), "working")
	w.done("b")
	fronttest.Eventually(t, "the end of b's task", func() bool { return strings.Contains(get(h, ids["b"]), "job done") })
	for _, server := range []string{"a", "b"} {
		e := fronttest.JournalOf(t, w.JournalOf(server))
		if len(e) != 1 {
			t.Fatalf("effects of %s: %+v", server, e)
		}
		r, err := w.DB.Record(t.Context(), ledger.Key{Namespace: tga.DefaultNamespace, Server: server, Tool: "job", Key: e[0].Key})
		if err != nil || r.Status != ledger.Settled {
			t.Errorf("the record of %s: %+v %v", server, r, err)
		}
	}
	raw, err := os.ReadFile(filepath.Join(w.Dir, "state", "subject.key"))
	if err != nil || len(raw) != 32 {
		t.Errorf("the secret: %d bytes, %v", len(raw), err)
	}
	search := fronttest.SearchFor(t, filepath.Join(w.Dir, "data"), ids["a"], ids["b"]) // the log has the tool servers' own
	search("", "")
}

// TestTaskIsOfItsIdentity: the id of another identity, of another tool server or of another gateway, and an invented id,
// lead nowhere, and no tool server gets such a request.
func TestTaskIsOfItsIdentity(t *testing.T) {
	w := newWorld(t)
	h := w.gatedAs("ann", w.behind("a", names.Names{}), w.behind("b", names.Names{}))
	h.Greet()
	id := taskID(t, h.Call("1", "a__job", `{"n":7}`))
	other := newWorld(t)
	for name, bad := range map[string]string{
		"the tool server's own": "job-7", "none": "", "of another server": strings.Replace(id, "-a:", "-b:", 1), "of another task": id[:len(id)-1] + "8",
		"with another seal": strings.Replace(id, id[5:10], "00000", 1), "cut": id[:20], "of a server that is not there": taskNames(t, filepath.Join(w.Dir, "state"), "ann").Seen("c", "job-7"),
		"of bob's": taskNames(t, filepath.Join(w.Dir, "state"), "bob").Seen("a", "job-7"), "of another gateway": taskNames(t, other.Dir, "ann").Seen("a", "job-7"),
	} {
		raw, err := json.Marshal(map[string]string{"taskId": bad})
		if err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/update", "tasks/cancel"} {
			if got := h.Ask("2", method, string(raw)); !strings.Contains(got, `"code":-32602`) || !strings.Contains(got, string(tga.NotFound)) {
				t.Errorf("%s %s: %s", method, name, got)
			}
		}
	}
	if got := h.Ask("2", "tasks/get", `{"taskId":"`+id+`"}`); !strings.Contains(got, "working") {
		t.Errorf("its own: %s", got)
	}
	// Bob uses the same tool server, which lists the tasks of all identities.
	bob := w.gatedAs("bob", w.behind("a", names.Names{}, func(o *mcpfront.Options) { o.Namespace = "bob" }))
	bob.Greet()
	his := taskID(t, bob.Call("1", "a__job", `{"n":8}`))
	if err := os.WriteFile(w.JournalOf("a")+".tasks", []byte(`{"tasks":[{"taskId":"job-7","status":"working"},{"taskId":"job-8","status":"working"},{"taskId":"job-9","status":"working"},{}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for client, want := range map[*shim]string{h: id, bob: his} {
		if got := client.Ask("3", "tasks/list", `{}`); got != `{"jsonrpc":"2.0","id":3,"result":{"tasks":[{"taskId":"`+want+`","status":"working"}]}}` {
			t.Errorf("the list: %s", got)
		}
	}
	// A gateway that was started since knows the unfinished tasks from the log.
	_ = h.Stop()
	h = w.gatedAs("ann", w.behind("a", names.Names{}))
	h.Greet()
	fronttest.Eventually(t, "the list of what the log has", func() bool {
		return strings.Contains(h.Ask("3", "tasks/list", `{}`), `"tasks":[{"taskId":"`+id+`","status":"working"}]`)
	})
}

// TestTasksInEveryMessage: the id of a task is replaced in each place where a revision has one, in both directions. A
// member that only looks like one stays unchanged.
func TestTasksInEveryMessage(t *testing.T) {
	w := newWorld(t)
	g := w.gateTo(names.Lists{}, w.behind("a", names.Names{}), w.behind("b", names.Names{}))
	f, err := g.fan(entry.NewStdout(io.Discard), entry.Whose{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.free()
	defer f.End()
	a, b := f.now().views[0].member, f.now().views[1].member
	seen := g.tasks.Seen("a", "t")
	const related = `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}`
	for _, c := range []struct{ method, msg string }{
		{"tools/call", `{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"t","status":"working"}}`},
		{"tools/call", `{"jsonrpc":"2.0","id":1,"result":{"task":{"status":"working","taskId":"t"}}}`},
		{"tools/call", `{"jsonrpc":"2.0","id":1,"result":{"content":[],` + related + `}}`},
		{"tasks/get", `{"jsonrpc":"2.0","id":1,"result":{"taskId":"t","status":"working"}}`},
		{"tasks/cancel", `{"jsonrpc":"2.0","id":1,"result":{` + related + `,"taskId":"t"}}`},
		{"", `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t","status":"working"}}`},
		{"", `{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t","status":"working"}}`},
		{"", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,` + related + `}}`},
		{"", `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{` + related + `}}`},
	} {
		f.asked[frames.KeyOf([]byte("1"))] = asked{a, c.method, time.Now()}
		msg := frames.NewFrame([]byte(c.msg))
		_, parts, err := seat{a}.tasked(&msg.Envelope, []io.WriterTo{msg})
		if err != nil {
			t.Fatal(err)
		}
		out, err := whole(parts)
		if want := strings.ReplaceAll(c.msg, `"taskId":"t"`, `"taskId":"`+seen+`"`); err != nil || string(out.Head) != want {
			t.Errorf("%s: %s\nwant %s, %v", c.method, out.Head, want, err)
		}
	}
	for method, same := range map[string]string{
		"tools/call": `{"jsonrpc":"2.0","id":1,"result":{"taskId":"t","structuredContent":{"taskId":"t"}}}`, "prompts/get": `{"jsonrpc":"2.0","id":1,"result":{"taskId":"t","task":{"taskId":"t"}}}`,
		"": `{"jsonrpc":"2.0","id":"q","method":"tasks/get","params":{"taskId":"t"}}`, // of the client's own
	} {
		f.asked[frames.KeyOf([]byte("1"))] = asked{a, method, time.Now()}
		msg := frames.NewFrame([]byte(same))
		_, parts, err := seat{a}.tasked(&msg.Envelope, []io.WriterTo{msg})
		if out, wErr := whole(parts); err != nil || wErr != nil || string(out.Head) != same {
			t.Errorf("%s: %s %v", method, out.Head, err)
		}
	}
	for _, back := range []string{
		`{"jsonrpc":"2.0","id":"q","result":{` + related + `}}`, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{` + related + `}}`,
	} {
		mine := strings.ReplaceAll(back, `"t"`, `"`+seen+`"`)
		if got := a.untasked(frames.NewFrame([]byte(mine))); string(got.Head) != back {
			t.Errorf("back: %s", got.Head)
		}
		if got := b.untasked(frames.NewFrame([]byte(mine))); string(got.Head) != mine {
			t.Errorf("to another tool server: %s", got.Head)
		}
	}
}

// TestStreamTellsOfTasks: each tool server is asked for its own tasks, and the client gets notifications of them with the
// ids that it knows. Other tasks are not promised.
func TestStreamTellsOfTasks(t *testing.T) {
	w := newWorld(t)
	h := w.gatedAs("ann", w.behind("a", names.Names{}), w.behind("b", names.Names{}))
	modernly := func(id, method, members string) string {
		body, _ := fronttest.Modern(id, method, members)
		h.Write(body)
		return h.Answer(id)
	}
	ids := map[string]string{}
	for server, n := range map[string]string{"a": "7", "b": "8"} {
		ids[server] = taskID(t, modernly("1", "tools/call", `"name":"`+server+`__job","arguments":{"n":`+n+`}`))
	}
	body, _ := fronttest.Modern(`"s"`, "subscriptions/listen", `"notifications":{"taskIds":["`+ids["a"]+`","job-7","`+ids["b"]+`","x"]}`)
	h.Write(body)
	for !strings.Contains(strings.Join(h.Said, "\n"), "acknowledged") {
		h.Said = append(h.Said, h.ReadLine())
	}
	ack := h.Said[len(h.Said)-1]
	fronttest.Has(t, ack, `"taskIds":["`+ids["a"]+`","`+ids["b"]+`"]`)
	for server, want := range map[string]string{"a": `{"taskIds":["job-7"]}`, "b": `{"taskIds":["job-8"]}`} {
		if asked, err := os.ReadFile(w.JournalOf(server) + ".subscribed"); err != nil || string(asked) != want {
			t.Errorf("%s was asked for %s, want %s, %v", server, asked, want, err)
		}
	}
	modernly("2", "tools/call", `"name":"b__grow","arguments":{"task":"job-8"}`)
	told := strings.Join(h.Said, "\n")
	fronttest.Has(t, told, `"method":"notifications/tasks"`, `"taskId":"`+ids["b"]+`"`, `"io.modelcontextprotocol/subscriptionId":"s"`)
	fronttest.Lacks(t, told, `"taskId":"job-8"`, `"taskId":"`+ids["a"]+`"`, "list_changed")
}

// TestTasksAreDeclared: the gateway declares the task capabilities that its tool servers have.
func TestTasksAreDeclared(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{`"capabilities":{"tools":{}}`, `"capabilities":{}`, ""},
		{`"capabilities":{"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}`, `"capabilities":{}`, `"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}`},
		{`"capabilities":{"tasks":{"list":{}}}`, `"capabilities":{"tasks":{"cancel":{}}}`, `"tasks":{"list":{},"cancel":{}}`},
		{`"capabilities":{"tasks":{}}`, `"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{},"x":{}}}`, `"tasks":{},"extensions":{"io.modelcontextprotocol/tasks":{}}`},
	} {
		w := newWorld(t)
		for server, text := range map[string]string{"a": c.a, "b": c.b} {
			if err := os.WriteFile(w.JournalOf(server)+".capabilities", []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		said := w.gated(w.behind("a", names.Names{}), w.behind("b", names.Names{})).Greet()
		if c.want == "" {
			fronttest.Lacks(t, said, "tasks", "extensions")
		} else {
			fronttest.Has(t, said, c.want)
		}
	}
}

// TestKilledGatewayKeepsItsTasks kills a gateway with SIGKILL at every point of a call that becomes a task, and of the
// answer that ends it. The client starts it again and asks with the id that it has.
func TestKilledGatewayKeepsItsTasks(t *testing.T) {
	points := []string{"before send", "answer read", "delivered"}
	if fronttest.EveryKill() {
		points = fronttest.KillPoints
	}
	for _, point := range points {
		r := fronttest.NewRig(t, true)
		r.Verb, r.Victim = "gate", point+": gate"
		args, result := `{"n":7}`, `{"content":[{"type":"text","text":"ok"}],"structuredContent":{"killed":1}}`
		if point == "request read" || point == "before begin" || point == "before send" {
			args = `{"killed":1,"n":7}`
		}
		r.Far = "http://127.0.0.1:1/none"
		answer, _ := r.Call("fake__job", args)
		if point == "before send" && strings.Contains(answer, "OUTCOME UNKNOWN") && r.Ran(args) == 0 {
			continue // the call may have been sent
		}
		id := taskID(t, answer)
		r.Drop() // whatever happened to the first gateway, the client has the id
		if err := os.WriteFile(r.Journal+".taskdone", []byte(result), 0o600); err != nil {
			t.Fatal(err)
		}
		fronttest.Eventually(t, point+": the end of the task", func() bool {
			if r.Peer == nil {
				if err := r.Dial(); err != nil {
					r.Drop()
					return false
				}
			}
			got, err := r.Ask("tasks/get", `{"taskId":"`+id+`"}`)
			if err != nil {
				r.Drop()
			}
			return strings.Contains(got, `"taskId":"`+id+`"`) && strings.Contains(got, `"text":"ok"`)
		})
		fronttest.Eventually(t, "the kill: "+point, func() bool {
			_, err := os.Stat(filepath.Join(r.Dir, "killed"))
			return err == nil
		})
		if n := r.Ran(args); n != 1 {
			t.Errorf("%s: %d effects", point, n)
		}
		r.Drop()
	}
}
