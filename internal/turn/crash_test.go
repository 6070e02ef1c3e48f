package turn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func newID() tga.ID { return tga.ID(uuid.Must(uuid.NewV7())) }

// image is the disk as a power cut leaves it, and what the outside had seen by then.
type image struct {
	where string
	id    tga.ID
	disk  vfs.FS
	out   *outside
}

// crashImages runs one message and takes an image at every point where the power could fail:
// before and after each append, and before and after each request to a model or a tool.
func crashImages(t *testing.T, text string, change ...func(*world)) []image {
	t.Helper()
	disk := crashmem.New()
	id := newID()
	var images []image
	var w *world
	n := 0
	hook := func(where string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		n++
		images = append(images, image{fmt.Sprintf("%s %d", where, n), id, disk.CrashClone(vfs.CrashCloneCfg{}), w.out.clone()})
	}
	w = newWorld(t, append(change, func(w *world) {
		w.disk, w.hook = disk, func(string) {}
		w.wrap = func(s runtime.Store) runtime.Store { return &hooked{s, func(where string) { w.hook(where) }} }
	})...)
	if w.prepare != nil {
		w.prepare(w)
	}
	w.hook = hook
	res, err := w.r.Run(t.Context(), turn.Request{Agent: "helper", InteractionID: id, SessionID: "s", Message: []byte(text)})
	if err != nil || res.Status != turn.Completed {
		t.Fatalf("%+v, %v", res, err)
	}
	w.hook = func(string) {}
	return images
}

// TestCrashInAResumedTurn cuts the power a second time, while a turn goes on after the first cut,
// for a sample of all pairs. One of its tools reads the state and fails, which leaves a gap in
// the stored operations of the other tools.
func TestCrashInAResumedTurn(t *testing.T) {
	serial.Test(t)
	const text = "call count {\"x\":1}\ncall peek {}\ncall count {\"x\":2}\ncall count {\"x\":3}"
	set := func(w *world) {
		w.tool("peek", func(ctx context.Context, args string) (string, error) {
			if v, ok := turn.StateFrom(ctx); ok {
				if _, err := v.GetMany([]string{"n", "a", "b", "c"}); err != nil {
					return "", err
				}
			}
			return "", errors.New("seen enough")
		})
	}
	first, pairs := crashImages(t, text, set), 0
	step := 2
	if testing.Short() {
		step = 9
	}
	for i := 0; i < len(first); i += step {
		var second []image
		var w *world
		disk := first[i].disk.(*crashmem.FS)
		hook := func(where string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			second = append(second, image{first[i].where + ", then " + where, first[i].id, disk.CrashClone(vfs.CrashCloneCfg{}), w.out.clone()})
		}
		w = newWorld(t, set, func(w *world) {
			w.disk, w.out, w.hook = disk, first[i].out, func(string) {}
			w.wrap = func(s runtime.Store) runtime.Store { return &hooked{s, func(where string) { w.hook(where) }} }
		})
		w.hook = hook
		w.goOn(first[i].id, first[i].where, text)
		w.hook = func(string) {}
		w.stop()
		for j := i % 3; j < len(second); j += 3 {
			c := second[j]
			w := newWorld(t, set, func(w *world) { w.disk, w.out = c.disk, c.out })
			res := w.goOn(c.id, c.where, text)
			if res.Status != turn.Completed || res.Text != `tools said {"n":1}, TOOL_ERROR: seen enough, {"n":2}, {"n":3}` {
				t.Errorf("%s: %+v", c.where, res)
			}
			if got := w.read("n", "log"); string(got["n"]) != "3" || string(got["log"]) != `[{"x":1},{"x":2},{"x":3}]` {
				t.Errorf("%s: state %s", c.where, got)
			}
			if len(w.out.requests) != 2 || len(w.out.effects) != 4 {
				t.Errorf("%s: %d questions, %d effects", c.where, len(w.out.requests), len(w.out.effects))
			}
			w.stop()
			pairs++
		}
	}
	t.Logf("%d first cuts, %d pairs", len(first), pairs)
}

// goOn recovers, or sends the message again if nothing was durable or everything was.
func (w *world) goOn(id tga.ID, where, text string) turn.Result {
	w.t.Helper()
	recovered, err := w.r.Recover(context.Background())
	if err != nil {
		w.t.Fatalf("%s: %v", where, err)
	}
	if len(recovered) == 1 {
		return recovered[0]
	}
	w.nothingOpen(id, where)
	res, err := w.r.Run(context.Background(), turn.Request{Agent: "helper", InteractionID: id, SessionID: "s", Message: []byte(text)})
	if err != nil {
		w.t.Fatalf("%s: %v", where, err)
	}
	return res
}

// nothingOpen checks every turn that is not in the index of open turns: it has no journal, or it
// has ended with all turns that followed it.
func (w *world) nothingOpen(id tga.ID, where string) {
	w.t.Helper()
	for {
		records, err := w.r.Records(context.Background(), id)
		if tga.CodeOf(err) == tga.NotFound {
			return
		}
		if err != nil {
			w.t.Fatalf("%s: %v", where, err)
		}
		last := records[len(records)-1]
		var end struct {
			Next *tga.ID `json:"next"`
		}
		if err := json.Unmarshal(last.Body, &end); err != nil || last.Phase != turn.Emit || last.Kind != turn.Done {
			w.t.Fatalf("%s: turn %s is not in the index and ends with %s %s, %v", where, id, last.Phase, last.Kind, err)
		}
		if end.Next == nil {
			return
		}
		id = *end.Next
	}
}

type hooked struct {
	runtime.Store
	hook func(where string)
}

func (s *hooked) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	s.hook("append before")
	done, err := s.Store.Append(ctx, lease, b)
	s.hook("append after")
	return done, err
}

// TestCrashAnywhereInATurn cuts the power before and after every append and every message to and
// from model and tools. The turn then goes on and comes to the same end: the model was asked, and
// tools had effects, as often as in one run.
func TestCrashAnywhereInATurn(t *testing.T) {
	serial.Test(t)
	const text = "call count {\"x\":1}\ncall echo {\"y\":2}\ncall count {\"x\":3}"
	for _, parallel := range []bool{false, true} {
		t.Run(fmt.Sprint("parallel=", parallel), func(t *testing.T) {
			set := func(w *world) {
				for i := range w.defs {
					w.defs[i].Parallel = parallel
				}
			}
			images := crashImages(t, text, set)
			asked, again := 0, 0
			for _, c := range images {
				w := newWorld(t, set, func(w *world) { w.disk, w.out = c.disk, c.out })
				res := w.goOn(c.id, c.where, text)
				wantEnd(t, c.where, w, res, parallel)
				for key, n := range w.out.requests {
					asked += n
					if n > 1 {
						again++
						if !strings.HasPrefix(c.where, "model") && !strings.HasPrefix(c.where, "append") || n > 2 {
							t.Errorf("%s: question %s was sent %d times", c.where, key, n)
						}
					}
				}
				if len(w.out.requests) != 2 || len(w.out.effects) != 3 {
					t.Errorf("%s: %d questions, %d effects", c.where, len(w.out.requests), len(w.out.effects))
				}
				w.stop()
			}
			t.Logf("%d crash images, %d questions sent, %d of them again after a crash between sending and recording", len(images), asked, again)
			if len(images) < 40 {
				t.Errorf("only %d places to crash at", len(images))
			}
		})
	}
}

func wantEnd(t *testing.T, where string, w *world, res turn.Result, parallel bool) {
	t.Helper()
	if res.Status != turn.Completed || res.Turns != 2 || len(res.Effects) != 3 || !strings.Contains(res.Text, `{"y":2}`) {
		t.Fatalf("%s: %+v", where, res)
	}
	if !parallel && res.Text != `tools said {"n":1}, {"y":2}, {"n":2}` {
		t.Errorf("%s: answer %q", where, res.Text)
	}
	got := w.read("n", "log")
	list, n := string(got["log"]), string(got["n"])
	kept := 0
	for _, e := range res.Effects {
		switch {
		case e.Name == "count" && e.Status == turn.ToolSucceeded:
			kept++
		case parallel && e.Name == "count" && e.Failure.Code != tga.StateConflict:
			t.Errorf("%s: %+v", where, e)
		}
	}
	// The results of two calls that ran at once say which changes are kept.
	switch {
	case kept == 2 && n == "2" && (list == `[{"x":1},{"x":3}]` || parallel && list == `[{"x":3},{"x":1}]`):
	case parallel && kept == 1 && n == "1" && (list == `[{"x":1}]` || list == `[{"x":3}]`):
	default:
		t.Errorf("%s: %d kept, state %s", where, kept, got)
	}
}
