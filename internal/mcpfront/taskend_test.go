package mcpfront

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// ends makes what the tool server says of its tasks from now on; "" is that they are completed.
func (w *world) ends(said string) {
	w.T.Helper()
	if err := os.WriteFile(w.Journal+".taskdone", []byte(said), 0o600); err != nil {
		w.T.Fatal(err)
	}
}

// job makes a call that becomes the task job-7, and returns the call's key.
func (w *world) job(h *shim) (key string) {
	w.T.Helper()
	fronttest.Has(w.T, h.Call("1", "job", `{"n":7}`), `"taskId":"job-7"`)
	return w.Effects()[0].Key
}

// picky returns the log, or one that refuses to record the end of any call.
func picky(w *world, refused bool) asklog.Log {
	if !refused {
		return w.Local()
	}
	return pickyLog{w.Local(), func(runtime.Reply) error { return tga.Errorf(tga.ValidationError, "no") }}
}

// TestTaskEndThatIsTold: a tool server tells the client of the end of a task in a notification. The end is recorded before
// the client hears of it; one that the log refuses is not told.
func TestTaskEndThatIsTold(t *testing.T) {
	const result = `{"content":[{"type":"text","text":"all done"}]}`
	for name, c := range map[string]struct{ method, params, now string }{
		"completed":             {"notifications/tasks", `"status":"completed","result":` + result, ""},
		"failed":                {"notifications/tasks", `"status":"failed","error":{"code":-32050,"message":"broken"}`, ""},
		"cancelled":             {"notifications/tasks", `"status":"cancelled"`, ""},
		"completed, no result":  {"notifications/tasks/status", `"status":"completed"`, result},
		"failed, no error":      {"notifications/tasks/status", `"status":"failed"`, `"status":"failed"`},
		"it is still not over":  {"notifications/tasks", `"status":"working"`, ""},
		"that of another party": {"notifications/tasks", `"status":"completed","other":true,"result":` + result, ""},
	} {
		for _, refused := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", refused ", refused), func(t *testing.T) {
				w := newWorld(t)
				w.log = picky(w, refused)
				h := w.start()
				h.Handshake()
				key := w.job(h)
				if c.now != "" {
					w.ends(c.now)
				}
				id := "job-7"
				if strings.Contains(c.params, "other") {
					id = "job-8"
				}
				line := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"taskId":%q,%s}}`, c.method, id, c.params)
				h.Ask("2", "say", fmt.Sprintf(`{"line":%q}`, line))
				over := id == "job-7" && !strings.Contains(c.params, "working")
				if !over || !refused {
					for len(h.Said) == 0 {
						h.Said = append(h.Said, h.ReadLine())
					}
					if h.Said[0] != line {
						t.Errorf("told %s", h.Said[0])
					}
					if settled := !w.noSettled("job", key); settled != over {
						t.Errorf("told, and the record is %+v", w.Record("job", key))
					}
					return
				}
				h.Ask("3", "echo", `{}`)
				h.Ask("4", "tasks/get", `{"taskId":"job-7"}`)
				if len(h.Said) != 0 {
					t.Errorf("told what the log refuses: %q", h.Said)
				}
			})
		}
	}
}

// TestTaskEndThatWasTold: an end that a subscriber was told counts as delivered, so the same call is a new call after it.
func TestTaskEndThatWasTold(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	w.job(h)
	line := `{"jsonrpc":"2.0","method":"notifications/tasks","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"},"taskId":"job-7","status":"completed","result":{"content":[]}}}`
	h.Ask("2", "say", fmt.Sprintf(`{"line":%q}`, line))
	for len(h.Said) == 0 {
		h.Said = append(h.Said, h.ReadLine())
	}
	fronttest.Lacks(t, h.Call("3", "job", `{"n":7}`), "replayed")
	if n := len(w.Effects()); n != 2 {
		t.Errorf("%d effects", n)
	}
}

// TestTaskWithALongEnd: of an end that is too long to keep, length and digest are recorded before the client has it, whoever
// asks. The client gets it whole.
func TestTaskWithALongEnd(t *testing.T) {
	const keep = 4096
	for _, size := range []int{2 * keep, 2 << 20} { // the second is not held in memory while it passes
		long := `{"content":[{"type":"text","text":"` + strings.Repeat("x", size) + `"}]}`
		for name, c := range map[string]struct{ done, ask, params, want string }{
			"the client asks":    {long, "tasks/get", `{"taskId":"job-7"}`, long},
			"a long error":       {`"status":"failed","error":{"code":1,"message":"` + strings.Repeat("x", size) + `"}`, "tasks/get", `{"taskId":"job-7"}`, strings.Repeat("x", size)},
			"nobody asks":        {long, "", "", ""},
			"a long result's":    {long, "tasks/result", `{"taskId":"job-7","pad":"` + strings.Repeat("y", size) + `"}`, strings.Repeat("y", size)},
			"long, and not over": {`"status":"working","statusMessage":"` + strings.Repeat("x", size) + `"`, "tasks/get", `{"taskId":"job-7"}`, strings.Repeat("x", size)},
		} {
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				w := newWorld(t)
				w.opts.MaxKeepBytes = keep
				h := w.start()
				h.Handshake()
				key := w.job(h)
				w.ends(c.done)
				settled := func() bool { r := w.Record("job", key); return r.Status == ledger.Settled }
				if c.ask == "" {
					fronttest.Eventually(t, "the record", settled)
				} else if got := h.Ask("2", c.ask, c.params); !strings.Contains(got, c.want) {
					t.Errorf("the client got %.200s", got)
				}
				if over := !strings.Contains(name, "not over"); settled() != over {
					t.Fatalf("the client has it, and the record is %+v", w.Record("job", key))
				} else if !over {
					return
				}
				got := h.Call("3", "job", `{"n":7}`)
				if c.ask == "" {
					fronttest.Has(t, got, "LIMIT_EXCEEDED")
				} else {
					fronttest.Lacks(t, got, "replayed") // it was delivered
				}
			})
		}
	}
}

// TestQuestionThatIsTooLongToRead: nobody can tell which task a question with such params is about, so it is not passed on: its answer
// could be an end that is not recorded.
func TestQuestionThatIsTooLongToRead(t *testing.T) {
	params := func(size int) string {
		const with = `{"taskId":"job-7","pad":""}`
		return `{"taskId":"job-7","pad":"` + strings.Repeat("y", size-len(with)) + `"}`
	}
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	key := w.job(h)
	fronttest.Has(t, h.Ask("2", "tasks/result", params(toolcall.MaxParams+1)), "LIMIT_EXCEEDED")
	fronttest.Lacks(t, h.Ask("3", "tasks/result", params(toolcall.MaxParams)), "LIMIT_EXCEEDED")
	if r := w.Record("job", key); r.Status != ledger.Settled {
		t.Errorf("the client has the end, and the record is %+v", r)
	}
}

// TestTaskResultThatIsAnError: the answer to tasks/result is that of the call, also if it is an error. The end is recorded
// before the client has it.
func TestTaskResultThatIsAnError(t *testing.T) {
	for _, refused := range []bool{false, true} {
		w := newWorld(t)
		w.log = picky(w, refused)
		h := w.start()
		h.Handshake()
		key := w.job(h)
		w.ends(`"status":"failed","statusMessage":"no money"`)
		if err := os.WriteFile(w.Journal+".taskfault", []byte(`{"code":-32050,"message":"no money"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		got := h.Ask("2", "tasks/result", `{"taskId":"job-7"}`)
		if strings.Contains(got, "no money") == refused {
			t.Errorf("refused %v: the client got %s", refused, got)
		}
		if settled := !w.noSettled("job", key); settled == refused {
			t.Errorf("refused %v: the record is %+v", refused, w.Record("job", key))
		}
		_ = h.Stop()
	}
}

// TestErrorOfAFailedTaskIsRecorded: in revision 2025-11-25 the status of a task that has failed does not have the error. It is asked for and
// recorded, so that a repeat of the call is served it.
func TestErrorOfAFailedTaskIsRecorded(t *testing.T) {
	for name, asks := range map[string]bool{"the shim alone asks": false, "the client asks": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			h := w.start()
			h.Handshake()
			const key = `{"dev.tgad/idempotencyKey":"k"}`
			fronttest.Has(t, h.Call("1", "job", `{"n":7}`, key), `"taskId":"job-7"`)
			if err := os.WriteFile(w.Journal+".taskfault", []byte(`{"code":-32050,"message":"no money"}`), 0o600); err != nil {
				t.Fatal(err)
			}
			w.ends(`"status":"failed","statusMessage":"it went wrong"`)
			if asks {
				fronttest.Has(t, h.Ask("2", "tasks/get", `{"taskId":"job-7"}`), `"failed"`)
			}
			fronttest.Eventually(t, "the end of the task", func() bool { return !w.noSettled("job", "k") })
			fronttest.Has(t, h.Call("3", "job", `{"n":7}`, key), `"error":{"code":-32050,"message":"no money"}`)
		})
	}
}

// slowRecord is a log that is slow to keep the record of an unfinished call, once it is told to be.
type slowRecord struct {
	asklog.Log
	slow atomic.Bool
}

func (l *slowRecord) Keep(ctx context.Context, r runtime.KeepRequest) (now runtime.Kept, changed bool, err error) {
	if l.slow.Load() && strings.HasPrefix(r.Name, attempt.OpenPrefix) {
		time.Sleep(500 * time.Millisecond)
	}
	return l.Log.Keep(ctx, r)
}

// TestTaskIdThatIsUsedAgainIsNotAskedAbout: a tool server that was started again gives the id of an earlier task to another call, whose
// task ends at once. While the shim notes that, its question about the earlier task records nothing for the earlier call.
func TestTaskIdThatIsUsedAgainIsNotAskedAbout(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	first := w.job(h)
	h.End() // as a kill: the client's end stays open
	_ = h.Stop()
	log := &slowRecord{Log: w.Local()}
	w.log = log
	h = w.start()
	h.Handshake()
	fronttest.Has(t, h.Call("2", "charge", `{}`), `"ok"`) // the shim knows the earlier task
	log.slow.Store(true)
	h.Write(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"job","arguments":{"n":7,"a":2}}}`)
	fronttest.Eventually(t, "the other call", func() bool { return len(w.Effects()) == 3 })
	w.ends("")
	fronttest.Has(t, h.Answer("3"), `"taskId":"job-7"`)
	log.slow.Store(false)
	fronttest.Has(t, h.Ask("4", "tasks/get", `{"taskId":"job-7"}`), "job done")
	if !w.noSettled("job", first) {
		t.Errorf("the earlier call has the other one's effect: %+v", w.Record("job", first))
	}
	if r := w.Record("job", w.Effects()[2].Key); r.Status != ledger.Settled {
		t.Errorf("the record of the other call is %+v", r)
	}
	// The other task is over and its id is free, for this shim and the next one. It stands for no earlier call's task again.
	for range 2 {
		got := h.Call("5", "job", `{"n":7}`)
		fronttest.Has(t, got, "OUTCOME UNKNOWN")
		fronttest.Lacks(t, got, "job-7")
		_ = h.Stop()
		h = w.start()
		h.Handshake()
	}
	fronttest.Has(t, h.Ask("6", "tasks/get", `{"taskId":"job-7"}`), "job done")
	if !w.noSettled("job", first) {
		t.Errorf("the earlier call has the other one's effect at last: %+v", w.Record("job", first))
	}
}

// TestEarlyWordOfATask: the tool server tells of the end of a task before the shim knows the tasks that an earlier shim left. The
// client hears of it once it is recorded.
func TestEarlyWordOfATask(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	key := w.job(h)
	h.End() // as a kill: the client's end stays open
	_ = h.Stop()
	w.log = slowShelf{w.Local()}
	h = w.start()
	h.Handshake()
	line := `{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"job-7","status":"completed","result":{"content":[]}}}`
	h.Ask("2", "say", fmt.Sprintf(`{"line":%q}`, line))
	for len(h.Said) == 0 {
		h.Said = append(h.Said, h.ReadLine())
	}
	if r := w.Record("job", key); h.Said[0] != line || r.Status != ledger.Settled {
		t.Errorf("told %q, and the record is %+v", h.Said, r)
	}
}
