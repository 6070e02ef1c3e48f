package workstate_test

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/internal/workstate/memfs"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// forgetful is a store that once gives no answer to an append, and goes on.
type forgetful struct {
	runtime.Store
	at   func(chain.Batch) bool
	done bool // the append is durable all the same
	over bool
}

func (s *forgetful) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	if s.over || !s.at(b) {
		return s.Store.Append(ctx, l, b)
	}
	s.over = true
	if s.done {
		if _, err := s.Store.Append(ctx, l, b); err != nil {
			return chain.Appended{}, err
		}
	}
	return chain.Appended{}, tga.Errorf(tga.StoreUnavailable, "no answer")
}

// TestStoreThatDidNotAnswer: a store gives no answer to an append of a call, and answers again later, as one in a
// database does. Nothing is called before the state was opened again. Then it agrees with the trace of the call, and
// a restart keeps what later calls did.
func TestStoreThatDidNotAnswer(t *testing.T) {
	begins := func(b chain.Batch) bool {
		return slices.ContainsFunc(b.Artifacts, func(a chain.NewArtifact) bool { return a.Artifact.Type == tga.CallType })
	}
	for name, at := range map[string]func(chain.Batch) bool{"EXECUTING": begins, "effect": ofEffect} {
		for _, done := range []bool{false, true} {
			w := inStore(t, workstate.Options{})
			w.onStore(func(s runtime.Store) runtime.Store { return &forgetful{Store: s, at: at, done: done} })
			_, _, err := w.call(bg, "good", `{"text":"a"}`)
			wantCode(t, err, tga.StoreUnavailable)
			_, _, err = w.call(bg, "good", `{"text":"too soon"}`)
			wantCode(t, err, tga.StoreUnavailable)
			want := "original"
			if name == "effect" && done {
				want = "a"
			}
			w.reopen()
			if got := w.seen(); got.Machine != want || got.Objective != want && want != "original" {
				t.Errorf("no answer to the %s, durable %v: %+v, want %s", name, done, got, want)
			}
			w.keeps("c")
			w.close()
		}
	}
}

// TestStoreThatDidNotTakeTheNodes: a change is too large for the batch of its record. The store gives no answer when
// the nodes are written ahead, and goes on. The change is taken back before anything else uses the state, and a
// restart keeps what later calls did.
func TestStoreThatDidNotTakeTheNodes(t *testing.T) {
	ahead := func(b chain.Batch) bool {
		return len(b.Attachments) > 100 && !slices.ContainsFunc(b.Attachments, func(a chain.Attachment) bool { return a.Kind != chain.AttachBlob })
	}
	w := inStore(t, workstate.Options{})
	w.onStore(func(s runtime.Store) runtime.Store { return &forgetful{Store: s, at: ahead} })
	large := make([]byte, 65<<20)
	for at := 0; at < len(large); at += 64 << 10 { // no two pieces of the file are equal
		binary.BigEndian.PutUint32(large[at:], uint32(at))
	}
	err := w.state.Update(bg, "large", func(_ context.Context, tx *workstate.Tx) error {
		files, err := workstate.Use[*memfs.FS](tx)
		must(t, err)
		w.machine.set("half")
		return files.WriteFile("large", large, 0o600)
	})
	wantCode(t, err, tga.StoreUnavailable)
	if got := w.machine.get(); got != "original" {
		t.Errorf("the machine has %q", got)
	}
	w.keeps("c")
}

// TestOvertakenHolderDoesNotEndTheNewCall: the lease of a trace goes to another process, and comes back to this one.
// What held it before then appends, in vain, and releases. The call that is made under the newer lease goes on.
func TestOvertakenHolderDoesNotEndTheNewCall(t *testing.T) {
	w := inStore(t, workstate.Options{})
	trace := newID()
	old, err := w.state.Store().Acquire(bg, trace)
	must(t, err)
	elsewhere, err := w.db.Overtake(bg, trace, false)
	must(t, err)
	w.db.Release(elsewhere)
	w.tools["slow"] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
		w.machine.set("half")
		note := chain.Attachment{Kind: chain.AttachStream, Key: keyspace.StreamKey(trace, 1), Value: []byte("late")}
		_, err := w.state.Store().Append(bg, old, chain.Batch{Attachments: []chain.Attachment{note}})
		wantCode(t, err, tga.StateConcurrentExecution)
		w.state.Store().Release(old)
		if got := w.machine.get(); got != "half" {
			t.Errorf("the machine has %q while the call is made", got)
		}
		return nil, apply(ctx, edit{Text: "a"})
	})
	res, err := w.rt.Call(bg, runtime.Request{TraceID: trace, Server: "local", Tool: "slow", Key: "k", Args: []byte(`{}`)})
	if err != nil || res.Status != tga.StatusSuccess {
		t.Fatalf("%+v, %v", res, err)
	}
	w.want(after("a", 1, 1, workstate.Usage{Calls: 1}))
	w.keeps("c")
}
