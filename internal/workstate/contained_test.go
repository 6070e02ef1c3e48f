package workstate_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// fuse is a resource that panics, or returns no node, when a method is called for the n-th time from now on.
type fuse struct {
	machine
	kv *workstate.KV // another resource, which does not panic
	in string
	n  int
}

func (f *fuse) burn(in string) (none bool) {
	if f.in != in {
		return false
	}
	if f.n--; f.n != 0 {
		return false
	}
	if f.in = ""; in != "none" {
		panic("no " + in)
	}
	return true
}

func (f *fuse) Snapshot(ctx context.Context) (*workstate.Node, error) {
	f.burn("snapshot")
	if f.burn("none") {
		return nil, nil
	}
	return f.machine.Snapshot(ctx)
}

func (f *fuse) Restore(ctx context.Context, n *workstate.Node) error {
	f.burn("restore")
	return f.machine.Restore(ctx, n)
}

// fused is a branching resource that does so.
type fused struct {
	*workstate.KV
	f *fuse
}

func (b fused) Branch() workstate.Branch {
	b.f.burn("branch")
	return fusedBranch{b.KV.Branch(), b.f}
}

type branch = workstate.Branch

type fusedBranch struct {
	branch
	f *fuse
}

func (b fusedBranch) Admit(context.Context, runtime.Call) error {
	b.f.burn("admit")
	return nil
}

func (b fusedBranch) Check(ignoreReads bool) error {
	b.f.burn("check")
	return b.branch.Check(ignoreReads)
}

func (b fusedBranch) Merge() {
	b.f.burn("merge")
	b.branch.Merge()
}

// preparing is a dispatcher whose Prepare panics.
type preparing struct {
	workstate.Tools
	f *fuse
}

func (p preparing) Prepare(context.Context, runtime.Call) ([]chain.Attachment, error) {
	p.f.burn("prepare")
	return nil, nil
}

// withFuse makes a state with both resources. Its tools change the one that calls take turns at.
func withFuse(t *testing.T, stored bool) (*fuse, *world) {
	f := &fuse{kv: workstate.NewKV()}
	w := &world{TB: t, tools: workstate.Tools{}, dir: filepath.Join(t.TempDir(), "store"), id: newID()}
	w.session, w.registry = newSession(t), &workstate.Registry{}
	must(t, workstate.Add(w.registry, f), workstate.Add(w.registry, fused{workstate.NewKV(), f}), workstate.Add(w.registry, f.kv))
	for name, failed := range map[string]error{"good": nil, "fail": workstate.ErrFailed} {
		w.tools[name] = workstate.Func(func(ctx context.Context, e edit) (any, error) {
			m, err := workstate.Use[*fuse](workstate.FromContext(ctx))
			if err != nil {
				return nil, err
			}
			m.set(e.Text)
			kv, err := workstate.Use[*workstate.KV](workstate.FromContext(ctx))
			if err != nil {
				return nil, err
			}
			kv.Set(e.Text, []byte("set"))
			return true, failed
		})
	}
	w.next = preparing{w.tools, f}
	if stored {
		w.open()
		t.Cleanup(w.close)
		return f, w
	}
	var err error
	w.state, err = workstate.New(bg, w.session, w.registry, w.opts)
	must(t, err)
	w.sent = workstate.Transact(w.next, w.state)
	return f, w
}

// TestResourceThatPanicsHoldsUpNoOtherCall: a transaction whose resource panicked leaves no change in the others, gives back
// its turns, and the next one goes on.
func TestResourceThatPanicsHoldsUpNoOtherCall(t *testing.T) {
	for _, x := range []struct {
		in   string
		n    int
		tool string
	}{
		{"snapshot", 1, "good"}, {"snapshot", 2, "good"}, {"none", 1, "good"}, {"none", 2, "good"}, {"restore", 1, "fail"},
		{"branch", 1, "good"}, {"admit", 1, "good"}, {"check", 1, "good"}, {"prepare", 1, "good"},
		{"merge", 1, "good"}, {"merge", 1, "good"}, {"merge", 1, "good"}, {"merge", 1, "good"}, // in any order with the others
	} {
		for _, stored := range []bool{false, true} {
			if x.in == "prepare" && !stored {
				continue // nobody calls Prepare
			}
			f, w := withFuse(t, stored)
			f.in, f.n = x.in, x.n
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			defer cancel()
			func() {
				defer func() { _ = recover() }() // without a runtime, a panic reaches the caller
				_, res, err := w.call(ctx, x.tool, `{"text":"a"}`)
				if err == nil && res.Status == tga.StatusSuccess {
					t.Errorf("%+v, stored %v: the call succeeded", x, stored)
				}
			}()
			if f.in != "" {
				t.Errorf("%+v, stored %v: nothing panicked", x, stored)
			}
			if _, ok := f.kv.Get("a"); ok {
				t.Errorf("%+v, stored %v: the failed call has left a change", x, stored)
			}
			if _, res, err := w.call(ctx, "good", `{"text":"b"}`); err != nil || res.Status != tga.StatusSuccess {
				t.Errorf("%+v, stored %v: the next call: %s %s, %v", x, stored, res.Status, res.ErrorMessage, err)
			}
		}
	}
}
