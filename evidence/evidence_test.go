package evidence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/evidence"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func verify(file, public string) error {
	r, err := bundle.Verify(strings.NewReader(file), bundle.Trust{Key: public})
	if err != nil {
		return err
	}
	fmt.Println(r.Verdict())
	return nil
}

// world is a store with a runtime and its evidence, and the checkpoint outside of the store.
type world struct {
	*testing.T
	dir, key, public, outside string
	db                        *engine.DB
	k                         *evidence.Keeper
	rt                        *runtime.Runtime
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{T: t, dir: filepath.Join(dir, "store"), key: filepath.Join(dir, "key"), outside: filepath.Join(dir, "checkpoint")}
	var err error
	if w.public, err = evidence.NewKey("payments.example/tgad", w.key); err != nil {
		t.Fatal(err)
	}
	w.open()
	return w
}

// open opens all of them. Only a close makes a checkpoint.
func (w *world) open() {
	w.Helper()
	var err error
	if w.db, err = engine.Open(w.dir, engine.Options{}); err != nil {
		w.Fatal(err)
	}
	if w.k, err = evidence.Open(w.Context(), w.db, w.dir, w.key, evidence.Options{Files: []string{w.outside}, Every: time.Hour}); err != nil {
		w.Fatal(err)
	}
	charge := func(context.Context, runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"receipt":17}`)}, nil
	}
	if w.rt, err = runtime.New(w.db, runtime.DispatcherFunc(charge), runtime.AllowAll, runtime.Options{Receipt: w.k.Receipt}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) close() {
	w.Helper()
	if rep, err := w.db.Check(w.Context()); err != nil || len(rep.Problems) > 0 {
		w.Errorf("%v, %v", rep, err)
	}
	if err := w.k.Close(); err != nil {
		w.Fatal(err)
	}
	if err := w.db.Close(); err != nil {
		w.Fatal(err)
	}
}

func (w *world) call(key string) tga.ID {
	w.Helper()
	res, err := w.rt.Call(w.Context(), runtime.Request{Server: "payments", Tool: "charge", Key: key, Args: []byte(`{"amount":100}`)})
	if err != nil {
		w.Fatal(err)
	}
	return res.TraceID
}

func (w *world) receipt(id tga.ID) runtime.Receipt {
	w.Helper()
	r, err := w.rt.Receipt(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func TestCloseCoversEverything(t *testing.T) {
	w := newWorld(t)
	id := w.call("order-1")
	if r := w.receipt(id); r.Pending != 2 || len(r.Leaves) != 2 || r.Checkpoint != "" || w.k.Checkpoint() != "" {
		t.Errorf("before a checkpoint: %+v", r)
	}
	w.close()
	w.open()
	r := w.receipt(id)
	if r.Pending != 0 || r.Checkpoint != w.k.Checkpoint() || r.Key != w.public {
		t.Errorf("after the close: %+v", r)
	}
	raw, err := os.ReadFile(w.outside)
	if err != nil || string(raw) != r.Checkpoint {
		t.Errorf("outside is %q, %v", raw, err)
	}
	if _, err := w.rt.Receipt(t.Context(), tga.ID{6: 0x70, 8: 0x80, 15: 1}); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("of no trace: %v", err)
	}
	w.close()
}

func TestExportVerifies(t *testing.T) {
	w := newWorld(t)
	first, second := w.call("order-1"), w.call("order-2")
	if err := w.k.Export(t.Context(), new(bytes.Buffer)); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("before a checkpoint: %v", err)
	}
	w.close()
	w.open()
	for name, ids := range map[string][]tga.ID{"everything": nil, "one": {second}, "both": {second, first}} {
		var file bytes.Buffer
		if err := w.k.Export(t.Context(), &file, ids...); err != nil {
			t.Fatal(err)
		}
		r, err := bundle.Verify(&file, bundle.Trust{Key: w.public})
		want := len(ids)
		if want == 0 {
			want = 2
		}
		if err != nil || r.Verdict() != bundle.Proved || len(r.Traces) != want {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	w.close()
}

func TestRolledBackStoreIsFrozen(t *testing.T) {
	w := newWorld(t)
	w.call("order-1")
	w.close()
	old := w.dir + ".old"
	if err := os.CopyFS(old, os.DirFS(w.dir)); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.call("order-2")
	w.close()
	if err := os.RemoveAll(w.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(old, w.dir); err != nil {
		t.Fatal(err)
	}
	w.open()
	if why := w.db.Stats().Frozen; !strings.Contains(why, w.outside) || !strings.Contains(why, "rolled back") {
		t.Errorf("frozen: %q", why)
	}
	if _, err := w.rt.Call(t.Context(), runtime.Request{Server: "payments", Tool: "charge", Key: "order-2"}); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("it takes a call: %v", err)
	}
	if err := w.k.Accept(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	if err := w.db.EndQuarantine(t.Context(), "ann"); err != nil { // order-2 is known from outside
		t.Fatal(err)
	}
	w.call("order-3")
	w.close()
	w.open() // an accepted fault does not freeze the store again
	w.call("order-4")
	w.close()
}

// TestKeyAndFilesAreOutside: a key or file inside the store would be rolled back with it.
func TestKeyAndFilesAreOutside(t *testing.T) {
	w := newWorld(t)
	inside := filepath.Join(w.dir, "key")
	if _, err := evidence.NewKey("a", inside); err != nil {
		t.Fatal(err)
	}
	if _, err := evidence.NewKey("a", inside); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("a key is replaced: %v", err)
	}
	for name, c := range map[string]struct {
		key string
		o   evidence.Options
	}{
		"key":     {inside, evidence.Options{}},
		"former":  {w.key, evidence.Options{FormerKeyFile: inside}},
		"file":    {w.key, evidence.Options{Files: []string{filepath.Join(w.dir, "log", "c")}}},
		"witness": {w.key, evidence.Options{Witnesses: []evidence.Witness{{URL: "https://w.example", Key: "a+b"}}}},
		"no key":  {w.key + "s", evidence.Options{}},
	} {
		if _, err := evidence.Open(t.Context(), w.db, w.dir, c.key, c.o); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.close()
}

// TestHandsOver: a new key takes over from the former one, and from no other.
func TestHandsOver(t *testing.T) {
	w := newWorld(t)
	id := w.call("order-1")
	w.close()
	former := w.key
	w.key += ".new"
	if _, err := evidence.NewKey("payments.example/tgad", w.key); err != nil {
		t.Fatal(err)
	}
	db, err := engine.Open(w.dir, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := evidence.Open(t.Context(), db, w.dir, w.key, evidence.Options{}); tga.CodeOf(err) != tga.PermissionDenied {
		t.Errorf("without the former key: %v", err)
	}
	k, err := evidence.Open(t.Context(), db, w.dir, w.key, evidence.Options{FormerKeyFile: former})
	if err != nil {
		t.Fatal(err)
	}
	r, err := k.Receipt(t.Context(), id)
	if err != nil || r.Key != w.public || len(r.HandOvers) != 1 || !checkpoint.IsHandOver([]byte(r.HandOvers[0])) {
		t.Errorf("%+v, %v", r, err)
	}
	w.db, w.k = db, k
	w.close()
}

// TestOriginIsOneLine: with an origin that no checkpoint can name, the store would sign what it cannot read at
// its next start.
func TestOriginIsOneLine(t *testing.T) {
	w := newWorld(t)
	if err := w.k.Close(); err != nil {
		t.Fatal(err)
	}
	for _, origin := range []string{"payments\n", "pay\tments", "\r", "\xff", strings.Repeat("a", 256)} {
		if _, err := evidence.Open(t.Context(), w.db, w.dir, w.key, evidence.Options{Origin: origin}); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%q: %v", origin, err)
		}
	}
	w.close()
}

// TestStoreHasOneKeeper: a second keeper of an open store is refused until the first is closed, so that two do not write
// over each other's notes. A second Close changes nothing.
func TestStoreHasOneKeeper(t *testing.T) {
	w := newWorld(t)
	w.call("order-1")
	open := func() (*evidence.Keeper, error) {
		return evidence.Open(t.Context(), w.db, w.dir, w.key, evidence.Options{Every: time.Hour})
	}
	if _, err := open(); !errors.Is(err, tga.StateLockAcquireFailed) {
		t.Errorf("a second keeper: %v", err)
	}
	first := w.k
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := evidence.Open(t.Context(), w.db, w.dir, w.outside, evidence.Options{}); err == nil {
		t.Error("a checkpoint is no key")
	}
	var err error
	if w.k, err = open(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Errorf("a second close: %v", err)
	}
	if _, err := open(); !errors.Is(err, tga.StateLockAcquireFailed) {
		t.Errorf("after the second close of the first keeper: %v", err)
	}
	w.close()
}
