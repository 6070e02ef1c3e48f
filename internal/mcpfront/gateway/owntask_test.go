package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// TestOwnTasksOfAGateway: a call to a tool server without tasks becomes a task, with an id of the gateway. Its client can
// ask about it and gets notifications; the gateway that is started next knows it.
func TestOwnTasksOfAGateway(t *testing.T) {
	w := newWorld(t)
	for server, can := range map[string]string{"a": `{"tools":{}}`, "b": `{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`} {
		if err := os.WriteFile(w.JournalOf(server)+".discover", []byte(`{"supportedVersions":["2026-07-28"],"capabilities":`+can+`}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start := func() *shim { return w.gatedAs("ann", w.behind("a", names.Names{}), w.behind("b", names.Names{})) }
	h := start()
	fronttest.Has(t, h.Ask("0", "server/discover", `{"_meta":`+fronttest.TasksMeta+`}`), `"extensions":{"io.modelcontextprotocol/tasks":{}}`)
	over := filepath.Join(w.Dir, "over")
	call := func(tool, args string) string { return h.Call("1", tool, args, fronttest.TasksMeta) }
	about := func(id string) string {
		return h.Ask("2", "tasks/get", `{"taskId":"`+id+`","_meta":`+fronttest.TasksMeta+`}`)
	}
	answer := call("a__charge", fmt.Sprintf(`{"wait":%q}`, over))
	id := mcpraw.ScalarText(mcpraw.At([]byte(answer), "/result/taskId"))
	trace, own := strings.CutPrefix(id[max(0, strings.LastIndex(id, ":")):], ":tgad-")
	if !own || !strings.HasPrefix(id, "gate-") {
		t.Fatalf("the task is %s", answer)
	}
	fronttest.Lacks(t, call("b__charge", `{"n":1}`), "taskId", "error") // that server has tasks, and made none
	fronttest.Has(t, about(id), `"taskId":"`+id+`"`, "working")
	fronttest.Has(t, about("tgad-"+trace), string(tga.NotFound))
	h.Write(`{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{"taskIds":["` + id + `"]},"_meta":` + fronttest.TasksMeta + `}}`)
	hear := func(what string) string {
		t.Helper()
		for {
			if line := h.ReadLine(); strings.Contains(line, what) {
				return line
			}
		}
	}
	fronttest.Has(t, hear("acknowledged"), `"taskIds":["`+id+`"]`)
	fronttest.Has(t, hear("notifications/tasks"), `"taskId":"`+id+`"`, "working", `"io.modelcontextprotocol/subscriptionId":"s"`)
	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fronttest.Has(t, hear("notifications/tasks"), `"taskId":"`+id+`"`, "completed", `"text":"ok"`)
	_ = h.Stop()
	h = start()
	fronttest.Has(t, about(id), `"taskId":"`+id+`"`, "completed", `"text":"ok"`)
	if n := len(fronttest.JournalOf(t, w.JournalOf("a"))); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// TestTaskThatMovesBeforeTheAcknowledgementIsTold: a tool server answers a subscription while others are not asked yet. Its newest
// notification of a task is then passed after the acknowledgement. Else a client that waits for the end of a task would wait for ever.
func TestTaskThatMovesBeforeTheAcknowledgementIsTold(t *testing.T) {
	joined = func() { time.Sleep(500 * time.Millisecond) }
	defer func() { joined = func() {} }()
	TestOwnTasksOfAGateway(t)
}

// TestOwnTaskOutlivesItsGateway kills a gateway with SIGKILL at every point of a call that is a task of the gateway.
func TestOwnTaskOutlivesItsGateway(t *testing.T) {
	points := []string{"before send", "answer read"}
	if fronttest.EveryKill() {
		points = fronttest.KillPoints
	}
	for _, point := range points {
		r := fronttest.NewRig(t, true)
		r.Verb, r.Victim, r.Far = "gate", point+": gate", "http://127.0.0.1:1/none"
		args := fmt.Sprintf(`{"killed":true,"p":%q}`, point)
		id, known := r.Follow("fake__charge", args)
		if n := r.Ran(args); n > 1 || n != 1 && strings.Contains(known, `"text":"ok"`) || !strings.Contains(known, `"text":"ok"`) && !strings.Contains(known, "OUTCOME UNKNOWN") {
			t.Errorf("%s: task %q, %d effects: %s", point, id, n, known)
		}
		if id != "" && !strings.HasPrefix(id, "gate-") {
			t.Errorf("%s: task %q", point, id)
		}
		r.Drop()
	}
}
