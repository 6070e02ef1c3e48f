package turn_test

import (
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/schemas/tga"
)

// endless is a world whose only agent delegates every message to itself.
func endless(calls int, set func(*turn.Options)) func(*world) {
	return func(w *world) {
		w.defs = []turn.Tool{{
			Name: "ask", InputSchema: []byte(`{"type":"object"}`), Delegation: &turn.Delegation{Type: turn.Supervisor, Target: "helper", NoSession: true},
			Source: turn.ToolSource{Type: turn.FromDelegation, AgentID: "helper"},
		}}
		w.say = func(q turn.Question) (turn.Answer, error) {
			if q.Messages[len(q.Messages)-1].Role != message.Tool {
				q.Messages = []message.Message{message.TextMessage(message.User, strings.TrimSuffix(strings.Repeat("call ask {\"message\":\"go on\"}\n", calls), "\n"), message.FromUser, 1)}
			}
			return obedient(q)
		}
		w.options = set
	}
}

// TestDelegationsHaveADepth: at the limit the agent may delegate, one past it the model is told.
// The smaller of the operator's and the manifest's limit holds.
func TestDelegationsHaveADepth(t *testing.T) {
	for _, c := range []struct{ operator, manifest, begun int }{
		{0, 0, turn.DefaultMaxDepth}, {1, 0, 1}, {2, 0, 2}, {3, 2, 2}, {2, 5, 2}, {-1, 0, 0},
	} {
		w := newWorld(t, endless(1, func(o *turn.Options) { o.MaxDepth = c.operator }), func(w *world) { w.agents[0].Constraints.MaxDepth = c.manifest })
		res := w.run("go on")
		// Each agent asks its model twice: once for the call, and once about the call's result.
		if res.Status != turn.Completed || sum(w.out.requests) != 2*(c.begun+1) || !strings.Contains(res.Text, "maximum depth") {
			t.Errorf("%+v: %d questions, %+v", c, sum(w.out.requests), res)
		}
	}
}

// TestDelegationsHaveABudget: the limit counts over all depths of one message, through a restart.
// The next message has its own budget.
func TestDelegationsHaveABudget(t *testing.T) {
	serial.Test(t)
	for _, most := range []int{1, 4, 5} {
		w := newWorld(t, endless(3, func(o *turn.Options) { o.MaxDepth, o.MaxDelegations = 9, most }))
		for range 2 {
			w.out.requests = map[string]int{}
			res := w.run("go on")
			if res.Status != turn.Completed || sum(w.out.requests) != 2*(most+1) || !strings.Contains(res.Text, "delegations per message") {
				t.Errorf("at most %d: %d questions, %+v", most, sum(w.out.requests), res)
			}
			w.restart()
		}
	}
}

// TestFilteredInputIsNowhereInTheStore: content that a filter removes from a message, or for
// which it blocks the message, is in no file of the store, in any form. What was received stays
// provable.
func TestFilteredInputIsNowhereInTheStore(t *testing.T) {
	const secret = "ann.private@example.com"
	for _, action := range []message.Action{message.Redact, message.Block} {
		w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor, WithHistory: true}), func(w *world) {
			for _, a := range w.agents {
				a.Filter = message.Filter{PII: []string{"email"}, Action: action}
			}
		})
		res := w.run(secret)
		if action == message.Redact && res.Status != turn.Completed || action == message.Block && (res.Failure == nil || res.Failure.Code != tga.ContentFiltered) {
			t.Errorf("%s: %+v", action, res)
		}
		w.run(`[{"role":"user","content":"call ask {\"message\":\"it is ` + secret + `\"}"}]`)
		id := res.InteractionID
		records, err := w.r.Records(t.Context(), id)
		if err != nil || !strings.Contains(string(records[0].Body), `"received":"`) || !strings.Contains(string(records[0].Body), `"received_bytes":23`) {
			t.Errorf("%s: %s, %v", action, records[0].Body, err)
		}
		w.restart() // this flushes everything
		for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), "ann.private"} {
			if file := holds(t, w.disk, "store", form); file != "" {
				t.Errorf("%s: %q is in %s", action, form, file)
			}
		}
	}
}

// holds returns a file under dir that contains text.
func holds(t *testing.T, disk vfs.FS, dir, text string) string {
	t.Helper()
	names, err := disk.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := disk.PathJoin(dir, name)
		info, err := disk.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Pebble has removed it
		}
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			if found := holds(t, disk, path, text); found != "" {
				return found
			}
			continue
		}
		f, err := disk.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), text) {
			return path
		}
	}
	return ""
}
