package workstate_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/schemas/tga"
)

const private = "nobody-reads-this-anywhere"

// filesWith lists the files below a directory that contain a text.
func filesWith(t testing.TB, dir, text string) (found []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return err
	}))
	return found
}

// erase erases the world's state, and what its calls carried, while nobody has the state open.
func (w *world) erase() (engine.Erased, error) {
	w.Helper()
	what := engine.Erasure{States: []tga.ID{w.id}, Who: "operator", Reason: "the customer asked"}
	for l, err := range w.db.Traces(bg, tga.ID{}) {
		must(w, err)
		what.Traces = append(what.Traces, l.TraceID)
	}
	return w.db.Erase(bg, what)
}

// TestErasedStateBeginsAnew: after an erasure the store contains nothing of a state, its boundaries and its forks, and
// there is nothing to roll back to. The state begins anew with what the program has, and goes on, also in a store from
// before erasures of whole states. An open state cannot be erased.
func TestErasedStateBeginsAnew(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		t.Run(map[bool]string{true: "sealed", false: "not sealed"}[sealed], func(t *testing.T) {
			w := inStore(t, workstate.Options{Ring: 3})
			if sealed {
				w.close()
				must(t, os.RemoveAll(w.dir))
				w.ring = new(chaintest.Ring)
				w.restart()
			}
			var calls []string
			for range 6 { // more than are kept
				calls = append(calls, w.do("good", `{"text":"`+private+`","tokens":1}`, tga.StatusSuccess))
			}
			last := calls[len(calls)-1]
			p := newParts(t)
			_, err := w.state.Fork(bg, last, p.session, p.registry, workstate.Options{})
			must(t, err)
			if found := filesWith(t, w.dir, private); (found == nil) != sealed {
				t.Errorf("it stands in %v", found)
			}
			_, err = w.erase()
			wantCode(t, err, tga.StateLockAcquireFailed)
			must(t, w.db.Backup(bg, w.dir+".backup"))
			w.state.Close()
			done, err := w.erase()
			if err != nil || done.States != 1 || sealed && (done.Unsealed > 0 || done.Keys != done.Traces+1) {
				t.Errorf("erased %+v, %v", done, err)
			}
			if found := filesWith(t, w.dir, private); found != nil {
				t.Errorf("it stands in %v", found)
			}
			_, err = workstate.Inspect(bg, w.db, w.id, 0, workstate.Options{})
			wantCode(t, err, tga.NotFound)
			if err != nil && !strings.Contains(err.Error(), "by operator: the customer asked") {
				t.Errorf("who erased it: %v", err)
			}
			if list, err := workstate.States(bg, w.db); err != nil || len(list) > 0 {
				t.Errorf("states %+v, %v", list, err)
			}
			must(t, w.db.Close())
			w.db = nil
			w.begunAnew(last)
			if !sealed {
				return
			}
			must(t, engine.Restore(bg, w.dir+".backup", w.dir+".restored", engine.Options{Keyring: w.ring, LowWaterBytes: 1}))
			w.close()
			w.dir += ".restored"
			db, err := engine.Open(w.dir, engine.Options{Keyring: w.ring, LowWaterBytes: 1})
			must(t, err, db.Unfreeze(bg, true, "operator"), db.EndQuarantine(bg, "operator"), db.Close())
			w.begunAnew(last)
		})
	}
}

// restart opens a closed world, as a program does when it starts.
func (w *world) restart() {
	w.Helper()
	w.parts = newParts(w)
	w.open()
}

// begunAnew opens an erased state, and fails the test if the state has anything from before the erasure.
func (w *world) begunAnew(call string) {
	w.Helper()
	for n := range 2 {
		w.restart()
		if _, err := w.state.PreSnapshot(bg, call); tga.CodeOf(err) != tga.NotFound {
			w.Errorf("it can be rolled back to before: %v", err)
		}
		kept := len(w.state.List())
		if kept != n {
			w.Errorf("%d boundaries are kept, want %d", kept, n)
		}
		id := w.do("good", `{"text":"since","tokens":1}`, tga.StatusSuccess)
		if n := len(w.state.List()); n != kept+1 {
			w.Errorf("%d boundaries after %d and a call", n, kept)
		}
		snap, err := w.state.PostSnapshot(bg, id)
		must(w, err)
		raw, err := snap.ToJSON()
		must(w, err)
		if bytes.Contains(raw, []byte(private)) {
			w.Errorf("it has what it had: %s", raw)
		}
		if _, err := w.state.Collect(bg); err != nil {
			w.Errorf("collection: %v", err)
		}
		if forks, err := w.state.Forks(bg); err != nil || forks[0] != 0 {
			w.Errorf("forks %v, %v", forks, err)
		}
		w.close()
	}
}
