package daemon

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// sharedStore is a store that several processes have open: the daemon has no files of it, and another
// process has left traces.
type sharedStore struct {
	directory
	mu     sync.Mutex
	away   error
	left   []tga.ID
	others map[tga.ID]bool // another daemon took them up meanwhile
	breaks int             // so many appends to what is left, which is let go of then
	loaded func()          // is called once, after the next Load and before its answer
	listed func()          // is called once, after the next Entries

	missing  error // of a store that is not open
	unlisted error // ends the list of open traces
}

// take calls a function once.
func (s *sharedStore) take(f *func()) {
	s.mu.Lock()
	call := *f
	*f = nil
	s.mu.Unlock()
	if call != nil {
		call()
	}
}

func (s *sharedStore) Entries(ctx context.Context, id tga.ID, after uint64) iter.Seq2[chain.Entry, error] {
	return func(yield func(chain.Entry, error) bool) {
		s.directory.Entries(ctx, id, after)(yield)
		s.take(&s.listed)
	}
}

func (s *sharedStore) Load(ctx context.Context, id tga.ID) (*chain.Trace, error) {
	t, err := s.directory.Load(ctx, id)
	s.take(&s.loaded)
	return t, err
}

func (s *sharedStore) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	s.mu.Lock()
	broken := s.breaks > 0 && slices.Contains(s.left, lease.TraceID)
	if broken {
		s.breaks--
		s.others[lease.TraceID] = true
	}
	s.mu.Unlock()
	if broken {
		return chain.Appended{}, tga.Errorf(tga.StoreUnavailable, "the server is away").In(lease.TraceID)
	}
	return s.directory.Append(ctx, lease, b)
}

func (s *sharedStore) Ready(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

func (s *sharedStore) Alone() bool { return false }

func (s *sharedStore) Missing() error { return s.missing }

func (s *sharedStore) OpenTraces(ctx context.Context) iter.Seq2[chain.OpenTrace, error] {
	return func(yield func(chain.OpenTrace, error) bool) {
		for o, err := range s.directory.OpenTraces(ctx) {
			if !yield(o, err) {
				return
			}
		}
		if s.unlisted != nil {
			yield(chain.OpenTrace{}, s.unlisted)
		}
	}
}

func (s *sharedStore) Left(context.Context) ([]tga.ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]tga.ID(nil), s.left...), nil
}

func (s *sharedStore) IsLeft(_ context.Context, id tga.ID) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.others[id], nil
}

// startShared starts a daemon of such a store.
func startShared(t *testing.T, extra string) (*bench, *sharedStore) {
	t.Helper()
	b, s := setup(t, extra), &sharedStore{others: map[tga.ID]bool{}}
	b.open = func(_ context.Context, o Options) (Store, error) {
		db, err := engine.Open(b.data, assemble.StoreOptions(o.Config))
		s.directory = directory{DB: db}
		return s, err
	}
	b.start()
	return b, s
}

// TestDaemonStartsWithoutAMissingStore: the open traces of a store that was away when the daemon began cannot be listed. The
// daemon serves the others. If no store is missing, and they cannot be listed all the same, it does not begin.
func TestDaemonStartsWithoutAMissingStore(t *testing.T) {
	away := tga.Errorf(tga.StoreUnavailable, "store 2 is not open")
	for _, missing := range []error{away, nil} {
		b, s := setup(t, ""), &sharedStore{others: map[tga.ID]bool{}, missing: missing, unlisted: away}
		b.open = func(_ context.Context, o Options) (Store, error) {
			db, err := engine.Open(b.data, assemble.StoreOptions(o.Config))
			s.directory = directory{DB: db}
			return s, err
		}
		if missing == nil {
			if err := Run(t.Context(), b.options()); tga.CodeOf(err) != tga.StoreUnavailable {
				t.Errorf("it served: %v", err)
			}
			continue
		}
		b.start()
		if res, err := b.client.Call(t.Context(), charge("k")); err != nil || res.State != tga.Completed {
			t.Errorf("%v, %v", res.State, err)
		}
	}
}

// TestStoreThatLacksSomething: every route that the store cannot serve has the same refusal, and all
// other routes work.
func TestStoreThatLacksSomething(t *testing.T) {
	b, s := startShared(t, "")
	ctx := t.Context()
	if res, err := b.client.Call(ctx, charge("k")); err != nil || res.State != tga.Completed {
		t.Fatalf("%v, %v", res.State, err)
	}
	_, sealed := b.client.Seal(ctx, 0)
	if _, err := b.client.Erase(ctx, wire.EraseRequest{Subject: "s", Reason: "r"}); err != nil {
		t.Errorf("erase: %v", err) // it needs no files
	}
	_, checkpoint := b.client.Proofs().Checkpoint(ctx)
	for what, err := range map[string]error{
		"backup": b.client.Backup(ctx, "/nowhere"), "seal": sealed, "checkpoint": checkpoint,
		"unfreeze": b.client.Unfreeze(ctx, true), "end-quarantine": b.client.EndQuarantine(ctx),
	} {
		if !errors.Is(err, tga.NotFound) {
			t.Errorf("%s: %v, want %s", what, err, tga.NotFound)
		}
	}
	if v, err := b.client.Verify(ctx, tga.ID{}); err != nil || !v.OK || v.Traces != 1 {
		t.Errorf("verify: %+v, %v", v, err)
	}
	if err := b.client.Ready(ctx); err != nil {
		t.Error(err)
	}
	s.mu.Lock()
	s.away = tga.Errorf(tga.StoreUnavailable, "the server is away")
	s.mu.Unlock()
	wantCode(t, b.client.Ready(ctx), tga.StoreUnavailable)
	if err := b.client.Live(ctx); err != nil {
		t.Errorf("a restart would help: %v", err)
	}
}

// TestStoreThatCannotErase: likewise, as of a daemon of all stores of a fleet.
func TestStoreThatCannotErase(t *testing.T) {
	b := setup(t, "")
	b.open = func(_ context.Context, o Options) (Store, error) {
		db, err := engine.Open(b.data, assemble.StoreOptions(o.Config))
		type shared = Shared // else the field would hide the method of that name
		return struct {
			Store
			shared
		}{directory{DB: db}, &sharedStore{}}, err
	}
	b.start()
	_, err := b.client.Erase(t.Context(), wire.EraseRequest{Subject: "s", Reason: "r"})
	wantCode(t, err, tga.NotFound)
}

// TestEvidenceNeedsFiles: a configuration that has checkpoints signed is refused where the store
// has none.
func TestEvidenceNeedsFiles(t *testing.T) {
	b := setup(t, "[evidence]\norigin = \"o\"\nkey_file = \"/nowhere\"\n")
	b.open = func(_ context.Context, o Options) (Store, error) {
		db, err := engine.Open(b.data, assemble.StoreOptions(o.Config))
		return &sharedStore{directory: directory{DB: db}}, err
	}
	wantCode(t, Run(t.Context(), b.options()), tga.ValidationError)
}

// TestOnlyWhatIsLeftIsTakenUp: of two calls in doubt, the daemon sends again the one that a dead process
// left, and not the one that another daemon has recovered meanwhile.
func TestOnlyWhatIsLeftIsTakenUp(t *testing.T) {
	b, s := startShared(t, "")
	var ids []tga.ID
	for _, key := range []string{"left", "taken"} {
		b.tool.respond(func(http.ResponseWriter, *http.Request, []byte) { panic(http.ErrAbortHandler) })
		_, err := b.client.Call(t.Context(), charge(key))
		wantCode(t, err, tga.EffectInDoubt)
		b.tool.respond(nil)
		if _, err := b.client.Call(t.Context(), charge("after "+key)); err != nil { // the breaker counts anew
			t.Fatal(err)
		}
		var e *tga.Error
		if !errors.As(err, &e) {
			t.Fatal(err)
		}
		ids = append(ids, e.TraceID)
	}
	sent := b.tool.sends("taken")
	s.mu.Lock()
	s.left = ids
	s.others[ids[1]] = true
	s.mu.Unlock()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if st, err := b.client.State(t.Context(), ids[0]); err != nil || time.Now().After(end) {
			t.Fatalf("%v, %v", st.Current, err)
		} else if st.Current == tga.Completed {
			break
		}
	}
	if n := b.tool.sends("taken"); n != sent {
		t.Errorf("what another daemon took up was sent %d times more", n-sent)
	}
	var open []wire.OpenTrace
	for o, err := range b.client.Traces(t.Context(), wire.TracesQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, o)
	}
	if len(open) != 1 || open[0].TraceID != ids[1] {
		t.Errorf("open: %+v", open)
	}
}

// TestBrokenRecoveryIsMadeAgain: a daemon recovers what a dead process left, and the store becomes unavailable before the call ends. The
// daemon has released the trace, so no other daemon looks for it. It recovers the trace itself once the store works again.
func TestBrokenRecoveryIsMadeAgain(t *testing.T) {
	b, s := startShared(t, "")
	b.tool.respond(func(http.ResponseWriter, *http.Request, []byte) { panic(http.ErrAbortHandler) })
	_, err := b.client.Call(t.Context(), charge("left"))
	wantCode(t, err, tga.EffectInDoubt)
	b.tool.respond(nil)
	if _, err := b.client.Call(t.Context(), charge("after")); err != nil { // the breaker counts anew
		t.Fatal(err)
	}
	var e *tga.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.left, s.breaks = []tga.ID{e.TraceID}, 2
	s.mu.Unlock()
	soon(t, "the call has come to its end", func() bool {
		st, err := b.client.State(t.Context(), e.TraceID)
		return err == nil && st.Current == tga.Completed
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.breaks != 0 {
		t.Errorf("the store was not away: %d", s.breaks)
	}
}
