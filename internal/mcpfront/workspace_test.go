package mcpfront

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/workspace"
	"github.com/tgad/tgad/schemas/tga"
)

// withWorkspace gives the world's shims a workspace, which the tool server changes.
func (w *world) withWorkspace() *workspace.Keeper {
	w.T.Helper()
	dir := filepath.Join(w.Dir, "work")
	if err := os.Mkdir(dir, 0o755); err != nil {
		w.T.Fatal(err)
	}
	w.Journal = filepath.Join(dir, "journal")
	k, err := workspace.Open(w.T.Context(), workspace.Options{Dir: dir})
	if err != nil {
		w.T.Fatal(err)
	}
	w.opts.Workspace = k
	return k
}

const keyK = `{"` + toolcall.MetaKey + `":"k"}`

func records(t *testing.T, k *workspace.Keeper) []workspace.Record {
	t.Helper()
	all, err := k.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSnapshotsStandAroundCalls: each send of a write call has a snapshot before and after it, which
// differ by what the tool server did. A read call has none.
func TestSnapshotsStandAroundCalls(t *testing.T) {
	w := newWorld(t)
	k := w.withWorkspace()
	h := w.start()
	h.Handshake()
	fronttest.Has(t, h.Call("1", "charge", `{"n":1}`), `"ok"`)
	fronttest.Has(t, h.Call("2", "look", `{}`), `"ok"`)
	fronttest.Has(t, h.Call("3", "charge", `{"die":"answer"}`), "may have run")
	all := records(t, k)
	if len(all) != 2 || all[0].Outcome != workspace.Succeeded || all[1].Outcome != workspace.InDoubt || all[0].Tool != "charge" || all[0].Server != "fake" {
		t.Fatalf("%+v", all)
	}
	for _, r := range all {
		id, err := tga.ParseID(r.TraceID)
		if err == nil {
			_, err = w.RT.Result(t.Context(), id)
		}
		if err != nil {
			t.Errorf("the trace of %+v: %v", r, err)
		}
		changes, now, err := k.Diff(t.Context(), r)
		if err != nil || now || len(changes) == 0 || r.Ended < r.Began {
			t.Errorf("%+v changed %v, %v", r, changes, err)
		}
	}
	// A repeat that is served makes no send, and so no snapshots.
	fronttest.Has(t, h.Call("4", "charge", `{"n":2}`, keyK), `"ok"`)
	fronttest.Has(t, h.Call("5", "charge", `{"n":2}`, keyK), `"ok"`)
	if n := len(records(t, k)); n != 3 {
		t.Errorf("%d records", n)
	}
}

// TestNoSnapshotNoCall: a call whose snapshot can't be taken is not sent, and its key is free.
func TestNoSnapshotNoCall(t *testing.T) {
	w := newWorld(t)
	k := w.withWorkspace()
	h := w.start()
	h.Handshake()
	repository := filepath.Join(k.Aside(), "snapshots")
	if err := errors.Join(os.Rename(repository, repository+".away"), os.WriteFile(repository, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	fronttest.Has(t, h.Call("1", "charge", `{"n":1}`, keyK), "The call was not sent: ")
	if _, err := os.Stat(w.Journal); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the tool server was asked: %v", err)
	}
	if err := errors.Join(os.Remove(repository), os.Rename(repository+".away", repository)); err != nil {
		t.Fatal(err)
	}
	fronttest.Has(t, h.Call("2", "charge", `{"n":1}`, keyK), `"ok"`)
	raw, err := os.ReadFile(w.Journal)
	if err != nil || strings.Count(string(raw), "\n") != 1 || len(records(t, k)) != 1 {
		t.Errorf("%s, %v", raw, err)
	}
}
