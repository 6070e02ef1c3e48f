package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// failing is a store of which one append fails: before anything is written, or after it.
type failing struct {
	runtime.Store
	at      int // of the appends from now on, by number; 0 is none
	written bool
	before  func() // the first append of a call, once; nil is nothing
}

// Append implements [runtime.Store].
func (f *failing) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	if do := f.before; do != nil && slices.ContainsFunc(b.Artifacts, func(a chain.NewArtifact) bool { return a.Artifact.Type == tga.CallType }) {
		f.before = nil
		do()
	}
	f.at--
	if f.at != 0 {
		return f.Store.Append(ctx, lease, b)
	}
	if f.written {
		if done, err := f.Store.Append(ctx, lease, b); err != nil {
			return done, err
		}
	}
	return chain.Appended{}, tga.Errorf(tga.StoreUnavailable, "a test of it")
}

// TestBeginThatFailsHalfWayEndsAsInADirectory: the begin of an executor fails at one of its appends, once with its key
// free, and once with another call taking the key meanwhile. The remains of the begin, their recovery, and the answers to
// the same begin and to another one afterwards are the same in both kinds of store.
func TestBeginThatFailsHalfWayEndsAsInADirectory(t *testing.T) {
	t.Parallel()
	dsn, shard := database(t)
	local, err := engine.Open(t.TempDir(), engine.Options{Create: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	remote := open(t, dsn, postgres.Options{Shard: shard})
	authorized := false
	for _, taken := range []bool{false, true} {
		for _, at := range []int{1, 2} {
			for _, written := range []bool{false, true} {
				key := fmt.Sprint(taken, at, written)
				want := beginAndFail(t, local, key, taken, at, written)
				if got := beginAndFail(t, remote, key, taken, at, written); !slices.Equal(got, want) {
					t.Errorf("key taken %v, append %d fails, written %v:\n%q in PostgreSQL\n%q in a directory", taken, at, written, got, want)
				}
				authorized = authorized || slices.Contains(want, "left AUTHORIZED")
			}
		}
	}
	if !authorized {
		t.Error("no begin was left half-way")
	}
}

func beginAndFail(t *testing.T, s runtime.Store, key string, taken bool, at int, written bool) (said []string) {
	f := &failing{Store: s}
	rt, err := runtime.New(f, &outside{}, runtime.AllowAll, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	begin := func(who, id string) runtime.Begun {
		b, err := rt.Begin(ctx, runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: "pay", Key: key}, BeginID: key + id})
		said = append(said, fmt.Sprintf("%s: %s %s %s, cause %s", who, b.Standing, b.Result.State, tga.CodeOf(err), tga.CodeOf(b.Cause)))
		return b
	}
	var other runtime.Begun
	f.at, f.written = at, written
	if taken {
		f.at, f.before = 0, func() {
			other = begin("the other", "other")
			f.at = at
		}
	}
	begin("it", "id")
	f.at = 0
	states := func(when string) {
		var list []string
		for o, err := range s.OpenTraces(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if tr, err := s.Load(ctx, o.TraceID); err == nil && tr.Request.Request.IdempotencyKey == key {
				list = append(list, when+" "+o.State.String())
			}
		}
		slices.Sort(list)
		said = append(said, list...)
	}
	states("left")
	if taken {
		_, err := rt.NotSent(ctx, other.Result.TraceID, other.Permit, "it was not", 0)
		said = append(said, fmt.Sprint("given back ", tga.CodeOf(err)))
	}
	if _, err := rt.RecoverAll(ctx, 1); err != nil {
		t.Fatal(err)
	}
	states("recovered")
	begin("it again", "id")
	begin("a third", "third")
	states("at last")
	return said
}
