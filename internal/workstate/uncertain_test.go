package workstate_test

import (
	"context"
	"slices"
	"testing"

	"github.com/tgad/tgad/internal/workstate"
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
