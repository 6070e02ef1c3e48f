package workstate_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/internal/workstate/memfs"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

var errFull = tga.Errorf(tga.LimitExceeded, "too much")

// alone says whether an append is the state's own, and of no trace.
func alone(b chain.Batch) bool { return len(b.Artifacts) == 0 && len(b.Attachments) > 0 }

// ofEffect says whether an append has the effect of a call.
func ofEffect(b chain.Batch) bool {
	return slices.ContainsFunc(b.Artifacts, func(a chain.NewArtifact) bool { return a.Artifact.Type == tga.EffectType })
}

// keeps makes a call that succeeds, and checks that a restart keeps what it did to the machine.
func (w *world) keeps(text string) {
	w.Helper()
	w.do("good", `{"text":"`+text+`"}`, tga.StatusSuccess)
	w.reopen()
	if got := w.machine.get(); got != text {
		w.Errorf("after a restart the machine has %q, want %q", got, text)
	}
	for _, c := range w.state.List() {
		if c.Open {
			w.Errorf("a boundary is open: %+v", c)
		}
	}
}

// TestRepairThatIsNotRecordedIsMadeAgain: a resource is restored at last, and the store refuses
// the record of it. A restart later on does not take back what calls did after that.
func TestRepairThatIsNotRecordedIsMadeAgain(t *testing.T) {
	w := inStore(t, workstate.Options{})
	o := w.observe()
	w.machine.broken = true
	w.do("fail", `{"text":"a"}`, tga.StatusFailure)
	w.machine.broken = false
	o.append = func(b chain.Batch) error {
		if alone(b) {
			return errFull
		}
		return nil
	}
	_, res, err := w.call(bg, "good", `{"text":"b"}`)
	if err == nil {
		err = res.ErrorCode
	}
	wantCode(t, err, tga.LimitExceeded)
	o.append = nil
	w.keeps("c")
}

// TestFailureThatIsNotRecordedIsUndoneOnce: the store refuses the effect of a call, and then the
// record of the call's failure. A restart does not take back what later calls did.
func TestFailureThatIsNotRecordedIsUndoneOnce(t *testing.T) {
	w := inStore(t, workstate.Options{})
	o := w.observe()
	failed := false
	o.append = func(b chain.Batch) error {
		if failed = failed || ofEffect(b); failed {
			return errFull
		}
		return nil
	}
	_, _, err := w.call(bg, "good", `{"text":"a"}`)
	wantCode(t, err, tga.LimitExceeded)
	o.append = nil
	w.keeps("b")
}

// TestFailureIsRecordedBeforeTheNextCall: nobody can use what a call held before the record of
// its failure is durable.
func TestFailureIsRecordedBeforeTheNextCall(t *testing.T) {
	w := inStore(t, workstate.Options{})
	o := w.observe()
	gone, cancel := context.WithCancel(bg)
	cancel()
	failed, recorded := false, false
	o.append = func(b chain.Batch) error {
		if ofEffect(b) {
			failed = true
			return errFull
		}
		if failed && alone(b) {
			recorded = true
			_, err := w.state.Snapshot(gone, workstate.SnapshotOptions{}, "")
			wantCode(t, err, tga.StateLockAcquireFailed)
		}
		return nil
	}
	_, _, err := w.call(bg, "good", `{"text":"a"}`)
	wantCode(t, err, tga.LimitExceeded)
	if !recorded {
		t.Error("the failure is not recorded")
	}
	o.append = nil
	w.keeps("b")
}

// TestFailureWithoutItsBoundaryIsRecorded: the store refuses an effect that has lost its boundary.
func TestFailureWithoutItsBoundaryIsRecorded(t *testing.T) {
	w := inStore(t, workstate.Options{})
	o := w.observe()
	var err error
	w.rt, err = runtime.New(w.state.Store(), losing{w.sent}, runtime.AllowAll, runtime.Options{})
	must(t, err)
	o.append = func(b chain.Batch) error {
		if ofEffect(b) {
			return errFull
		}
		return nil
	}
	_, _, err = w.call(bg, "good", `{"text":"a"}`)
	wantCode(t, err, tga.LimitExceeded)
	o.append = nil
	w.rt, err = runtime.New(w.state.Store(), w.sent, runtime.AllowAll, runtime.Options{})
	must(t, err)
	w.keeps("b")
}

// other is a second resource that calls take turns at.
type other struct{ machine }

// withOther opens the state with a second machine beside the first.
func (w *world) withOther(o *other) {
	w.Helper()
	w.state.Close()
	w.registry = &workstate.Registry{}
	must(w, workstate.Add(w.registry, memfs.New()), workstate.Add(w.registry, workstate.NewKV()),
		workstate.Add(w.registry, workstate.NewBudget(workstate.Usage{})), workstate.Add(w.registry, w.machine), workstate.Add(w.registry, o))
	var err error
	w.state, err = workstate.Open(bg, w.db, w.id, newSession(w), w.registry, w.opts)
	must(w, err)
	w.sent = workstate.Transact(w.next, w.state)
	w.rt, err = runtime.New(w.state.Store(), w.sent, runtime.AllowAll, runtime.Options{})
	must(w, err)
}

// TestRestartRestoresOnlyWhatIsBroken: of two resources that a call held, one cannot be restored. A
// restart that restores it keeps what later calls did to the other.
func TestRestartRestoresOnlyWhatIsBroken(t *testing.T) {
	for name, repaired := range map[string]bool{"it was not broken": false, "it was repaired": true} {
		t.Run(name, func(t *testing.T) {
			w := inStore(t, workstate.Options{Uses: func(_, tool string) []string {
				if tool == "first" {
					return []string{"*github.com/tgad/tgad/internal/workstate_test.machine"}
				}
				return nil
			}})
			second := &other{machine{text: "original"}}
			w.withOther(second)
			w.tools["both"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
				w.machine.set("a")
				second.set("a")
				return nil, errNo
			})
			w.tools["first"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
				w.machine.set("b")
				return nil, nil
			})
			w.machine.broken, second.broken = repaired, true
			w.do("both", `{}`, tga.StatusFailure)
			w.machine.broken = false
			w.do("first", `{}`, tga.StatusSuccess)
			second.broken = false
			w.withOther(second)
			if a, b := w.machine.get(), second.get(); a != "b" || b != "original" {
				t.Errorf("after a restart the machines have %q and %q, want b and original", a, b)
			}
		})
	}
}

// TestRepairEndsEveryBoundaryOfAResource: a call inside another and then the outer one cannot
// restore a resource. Once it is restored, a restart keeps what later calls did.
func TestRepairEndsEveryBoundaryOfAResource(t *testing.T) {
	w := inStore(t, workstate.Options{})
	w.machine.broken = true
	err := w.state.Update(bg, "outer", func(ctx context.Context, _ *workstate.Tx) error {
		return w.state.Update(ctx, "inner", func(ctx context.Context, _ *workstate.Tx) error {
			w.machine.set("a")
			return errNo
		})
	})
	wantCode(t, err, tga.RestoreFailed)
	w.machine.broken = false
	w.keeps("b")
}

// TestFoundIsKeptThroughACrashOfRecovery: a process is killed in a call, and the next process at any
// append of its recovery. What the first left in a resource is kept as a boundary.
func TestFoundIsKeptThroughACrashOfRecovery(t *testing.T) {
	for crashAt, over := 1, false; !over; crashAt++ {
		w := inStore(t, workstate.Options{})
		o := w.observe()
		crash := tga.Errorf(tga.StoreUnavailable, "crash")
		o.append = func(b chain.Batch) error {
			if ofEffect(b) {
				return crash
			}
			return nil
		}
		_, _, err := w.call(bg, "good", `{"text":"a"}`)
		wantCode(t, err, tga.StoreUnavailable)
		w.state.Close()
		appends := 0
		o.append = func(chain.Batch) error {
			if appends++; appends >= crashAt {
				return crash
			}
			return nil
		}
		r := &workstate.Registry{}
		must(t, workstate.Add(r, memfs.New()), workstate.Add(r, workstate.NewKV()), workstate.Add(r, workstate.NewBudget(workstate.Usage{})), workstate.Add(r, w.machine))
		s, err := workstate.Open(bg, o, w.id, newSession(t), r, w.opts)
		if over = err == nil; over {
			s.Close()
		}
		w.reopen()
		if got := w.machine.get(); got != "original" {
			t.Errorf("crash at append %d: the machine has %q", crashAt, got)
		}
		var found []string
		for _, c := range w.state.List() {
			if !strings.HasPrefix(c.Name, "found after a crash") {
				continue
			}
			snap, err := w.state.PreSnapshot(bg, c.ID)
			must(t, err)
			found = append(found, string(snap.Resources["*github.com/tgad/tgad/internal/workstate_test.machine"].Data()))
		}
		if len(found) == 0 || found[0] != `"a"` {
			t.Errorf("crash at append %d: found %v", crashAt, found)
		}
		w.close()
	}
}
