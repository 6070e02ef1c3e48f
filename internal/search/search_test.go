package search_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// stand is a store with an index of lists.
type stand struct {
	*testing.T
	*engine.DB
	dir, data string
	now       tga.Millis
	x         *search.Index
	stop      func()
	seeds     uint64
}

func newStand(t *testing.T) *stand {
	dir := t.TempDir()
	s := &stand{T: t, dir: filepath.Join(dir, "search"), data: filepath.Join(dir, "data"), now: 1_750_000_000_000, stop: func() {}}
	s.open()
	s.start()
	t.Cleanup(func() {
		s.stop()
		if err := s.DB.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *stand) open() {
	s.Helper()
	var err error
	if s.DB, err = engine.Open(s.data, engine.Options{
		Create: true, FirstSegmentBytes: 64 << 10, MemTableBytes: 1 << 20, CacheBytes: 1 << 20, LowWaterBytes: 1, Logger: slog.New(slog.DiscardHandler),
		Clock: func() time.Time { return time.UnixMilli(int64(s.now)) },
	}); err != nil {
		s.Fatal(err)
	}
}

// start makes the index serve, and stop ends that.
func (s *stand) start() {
	s.x = search.New(context.Background(), search.Options{Dir: s.dir, Driver: "sqlite", Store: s.DB})
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() { s.x.Run(ctx) })
	s.stop = func() {
		cancel()
		over.Wait()
		if err := s.x.Close(); err != nil {
			s.Error(err)
		}
		s.stop = func() {}
	}
}

// crash leaves of the index what lies on the disk now.
func (s *stand) crash() {
	s.Helper()
	was := s.dir
	s.dir = filepath.Join(s.TempDir(), "search")
	if err := os.CopyFS(s.dir, os.DirFS(was)); err != nil {
		s.Fatal(err)
	}
	s.stop()
	s.start()
}

// add appends a trace.
func (s *stand) add(o chaintest.Options) tga.ID {
	s.Helper()
	s.seeds++
	o.Seed, o.At = s.seeds, s.now
	return s.append(o, 0)
}

// append appends the entries of a trace after the first so many.
func (s *stand) append(o chaintest.Options, after int) tga.ID {
	s.Helper()
	id := chaintest.ID(o.Seed, 0)
	lease, err := s.Acquire(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	defer s.Release(lease)
	for _, a := range chaintest.Artifacts(o)[after:] {
		if _, err := s.Append(s.Context(), lease, chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: a}}}); err != nil {
			s.Fatal(err)
		}
	}
	s.now += 3000
	return id
}

// all returns what the log has.
func (s *stand) all() (all []*chain.Trace) {
	s.Helper()
	for l, err := range s.Traces(s.Context(), tga.ID{}) {
		if err != nil {
			s.Fatal(err)
		}
		t, err := s.Load(s.Context(), l.TraceID)
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, t)
	}
	return all
}

// want is which of all a query finds.
func want(all []*chain.Trace, q search.Query) (page []search.Mark) {
	for _, t := range all {
		l := t.Listing()
		if q.Namespace != "" && l.Namespace != q.Namespace || q.Server != "" && l.Server != q.Server || q.Tool != "" && l.Tool != q.Tool ||
			q.Key != "" && l.Key != q.Key || len(q.States) > 0 && !slices.Contains(q.States, l.State) || q.Class != ledger.ClassNone && search.ClassOf(t) != q.Class ||
			l.Since < q.Since || q.Until != 0 && l.Since >= q.Until {
			continue
		}
		page = append(page, search.Mark{Since: l.Since, Trace: l.TraceID})
	}
	slices.SortFunc(page, func(a, b search.Mark) int {
		if a.Since != b.Since {
			return int(b.Since - a.Since)
		}
		return bytes.Compare(b.Trace[:], a.Trace[:])
	})
	return page
}

// agrees reads lists page by page, and compares them with the log.
func (s *stand) agrees(queries ...search.Query) {
	s.Helper()
	all := s.all()
	for _, q := range queries {
		s.agree(all, q)
	}
}

func (s *stand) agree(all []*chain.Trace, q search.Query) {
	s.Helper()
	var got []search.Mark
	for {
		page, err := s.find(q)
		if err != nil {
			s.Fatalf("%+v: %v", q, err)
		}
		got = append(got, page...)
		if len(page) < q.Limit {
			break
		}
		q.After = page[len(page)-1]
	}
	if want := want(all, q); !slices.Equal(got, want) {
		s.Errorf("%+v: %d traces, want %d\n%v\n%v", q, len(got), len(want), got, want)
	}
}

// find asks until the index is there.
func (s *stand) find(q search.Query) (page []search.Mark, err error) {
	for range 30 {
		if page, err = s.x.Find(s.Context(), q); err == nil || s.Context().Err() != nil {
			break
		}
	}
	return page, err
}

// grid are queries of every kind, alone and together.
func (s *stand) grid() (all []search.Query) {
	middle := 1_750_000_000_000 + (s.now-1_750_000_000_000)/2
	for _, q := range []search.Query{
		{}, {Namespace: "a"}, {Namespace: "none"}, {Server: "pay"}, {Tool: "charge"}, {Tool: "none"},
		{Key: "k3"}, {States: []tga.State{tga.Pending}}, {States: []tga.State{tga.Completed}}, {States: []tga.State{tga.Denied, tga.Authorized}}, {Class: ledger.ClassCommitted}, {Since: middle}, {Until: middle},
		{Server: "pay", Tool: "refund", States: []tga.State{tga.Failed}}, {Namespace: "b", States: []tga.State{tga.Executing}, Since: middle},
		{Tool: "charge", Class: ledger.ClassCommitted, Until: middle}, {Key: "k3", Tool: "refund"},
	} {
		for _, limit := range []int{1, 7, 1000} {
			q.Limit = limit
			all = append(all, q)
		}
	}
	return all
}

// TestIndexIsAFunctionOfTheLog: whatever happens to it and to the store, a list is what the log says.
func TestIndexIsAFunctionOfTheLog(t *testing.T) {
	s := newStand(t)
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	var finished []tga.ID
	some := func(n int) {
		for range n {
			o := chaintest.Options{
				Meta:   tga.Meta{tga.MetaNamespace: pick("a", "b", tga.DefaultNamespace)},
				Server: pick("pay", "mail"), Tool: pick("charge", "refund"), Key: fmt.Sprintf("k%d", s.seeds),
				Verdict: pick(tga.Approve, tga.Approve, tga.Deny), Status: pick(tga.StatusSuccess, tga.StatusSuccess, tga.StatusError), Entries: r.IntN(5),
			}
			id := s.add(o)
			if o.Entries == 0 {
				finished = append(finished, id)
			}
			if r.IntN(3) == 0 {
				s.now -= 3000 // several of one millisecond
			}
		}
	}
	for step, do := range map[string]func(){
		"more": func() {},
		"more of the same": func() {
			s.seeds++
			o := chaintest.Options{Seed: s.seeds, At: s.now, Entries: 1}
			s.append(o, 0)
			for o.Entries < 4 {
				s.agrees(s.grid()...) // as it is now
				o.Entries++
				s.append(o, o.Entries-1)
			}
		},
		"closed":          func() { s.stop(); some(20); s.start() },
		"crashed":         s.crash,
		"lost":            func() { s.stop(); removeAll(t, s.dir); s.start() },
		"damaged":         func() { s.stop(); damage(t, s.dir, 0); s.start() },
		"damaged later":   func() { s.stop(); damage(t, s.dir, 5000); s.start() },
		"of another":      func() { s.stop(); another(t, s.dir); s.start() },
		"an erasure":      func() { s.erase(finished[:1]); finished = finished[1:] },
		"a whole erasure": func() { s.erase(nil) },
	} {
		some(30)
		do()
		s.agrees(s.grid()...)
		if t.Failed() {
			t.Fatalf("after the step: %s", step)
		}
	}
}

func removeAll(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// damage overwrites some of the database.
func damage(t *testing.T, dir string, at int64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "traces.db"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte("damage"), 3000), at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// another puts the index of another store in the place of this one's.
func another(t *testing.T, dir string) {
	t.Helper()
	o := newStand(t)
	for range 5 {
		o.add(chaintest.Options{Tool: "elsewhere"})
	}
	o.agrees(search.Query{Limit: 100})
	o.stop()
	removeAll(t, dir)
	if err := os.CopyFS(dir, os.DirFS(o.dir)); err != nil {
		t.Fatal(err)
	}
}

// erase erases traces, or all that are finished without saying which.
func (s *stand) erase(of []tga.ID) {
	s.Helper()
	what := engine.Erasure{Traces: of, Who: "test", Reason: "test"}
	if of == nil {
		for l, err := range s.Traces(s.Context(), tga.ID{}) {
			if err != nil {
				s.Fatal(err)
			}
			if l.State.Terminal() {
				what.Traces = append(what.Traces, l.TraceID)
			}
		}
	}
	if err := s.x.Erase(s.Context(), of, func() error {
		_, err := s.DB.Erase(s.Context(), what)
		return err
	}); err != nil {
		s.Fatal(err)
	}
	s.add(chaintest.Options{}) // what is found from here on is from after it
}

// has reports whether any file of the index has a text.
func (s *stand) has(text string) (found bool) {
	s.Helper()
	if err := fs.WalkDir(os.DirFS(s.dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(s.dir, path))
		found = found || bytes.Contains(b, []byte(text))
		return err
	}); err != nil {
		s.Fatal(err)
	}
	return found
}

// TestErasedNamesLeaveTheIndex: what an erasure took from the log is in no file of the index when it is
// over, named or not, and however it ended.
func TestErasedNamesLeaveTheIndex(t *testing.T) {
	const secret = "a-tool-named-after-somebody"
	s := newStand(t)
	for name, do := range map[string]func(id tga.ID){
		"named":   func(id tga.ID) { s.erase([]tga.ID{id}) },
		"unnamed": func(tga.ID) { s.erase(nil) },
		"then a crash": func(id tga.ID) {
			if err := s.x.Erase(t.Context(), []tga.ID{id}, func() error {
				if _, err := s.DB.Erase(t.Context(), engine.Erasure{Traces: []tga.ID{id}, Who: "test", Reason: "test"}); err != nil {
					return err
				}
				was := s.dir
				s.dir = filepath.Join(t.TempDir(), "search") // as it lies on the disk now
				return os.CopyFS(s.dir, os.DirFS(was))
			}); err != nil {
				t.Fatal(err)
			}
			if !s.has(secret) {
				t.Error("the crash comes too late")
			}
			s.stop()
			s.start()
		},
		"that failed": func(id tga.ID) {
			if err := s.x.Erase(t.Context(), []tga.ID{id}, func() error {
				if _, err := s.DB.Erase(t.Context(), engine.Erasure{Traces: []tga.ID{id}, Who: "test", Reason: "test"}); err != nil {
					t.Fatal(err)
				}
				return fs.ErrInvalid
			}); err != fs.ErrInvalid {
				t.Fatal(err)
			}
		},
	} {
		for range 40 { // more than one page
			s.add(chaintest.Options{})
		}
		id := s.add(chaintest.Options{Tool: secret})
		s.agrees(search.Query{Tool: secret, Limit: 10})
		if !s.has(secret) {
			t.Fatalf("%s: it was never in the index", name)
		}
		do(id)
		for until := time.Now().Add(20 * time.Second); s.has(secret); {
			if time.Now().After(until) {
				t.Fatalf("%s: the index still has it", name)
			}
			time.Sleep(10 * time.Millisecond)
		}
		s.agrees(search.Query{Tool: secret, Limit: 10})
		s.agrees(search.Query{Limit: 10})
	}
}

// TestIndexThatCannotBeMadeSaysSo, and is made once it can be.
func TestIndexThatCannotBeMadeSaysSo(t *testing.T) {
	s := newStand(t)
	s.add(chaintest.Options{})
	s.stop()
	removeAll(t, s.dir)
	if err := os.WriteFile(s.dir, nil, 0o600); err != nil { // a file where its directory should be
		t.Fatal(err)
	}
	s.start()
	if _, err := s.x.Find(t.Context(), search.Query{Limit: 1}); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("%v, want %s", err, tga.StoreUnavailable)
	}
	if err := s.x.Erase(t.Context(), nil, func() error { t.Error("it was erased"); return nil }); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("%v: what would stay in the index must not be erased", err)
	}
	if err := os.Remove(s.dir); err != nil {
		t.Fatal(err)
	}
	s.agrees(search.Query{Limit: 10})
}

// TestBrokenIndexIsMadeAnew: what only a list reads is met by nobody else. The list says so, and the index
// is made of the log, though nothing is appended.
func TestBrokenIndexIsMadeAnew(t *testing.T) {
	s := newStand(t)
	s.add(chaintest.Options{})
	s.agrees(search.Query{Limit: 10})
	db, err := sql.Open("sqlite", filepath.Join(s.dir, "traces.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("DROP TABLE traces"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.x.Find(t.Context(), search.Query{Limit: 10}); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("%v, want %s", err, tga.StoreUnavailable)
	}
	s.agrees(search.Query{Limit: 10})
}

// slow is a store whose list of traces does not come.
type slow struct{ *engine.DB }

func (slow) Traces(ctx context.Context, _ tga.ID) iter.Seq2[chain.Listed, error] {
	return func(yield func(chain.Listed, error) bool) {
		<-ctx.Done()
		yield(chain.Listed{}, ctx.Err())
	}
}

// TestHalfAnIndexIsNotShown: while it is made it would leave traces out.
func TestHalfAnIndexIsNotShown(t *testing.T) {
	s := newStand(t)
	s.add(chaintest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	x := search.New(ctx, search.Options{Dir: filepath.Join(t.TempDir(), "search"), Driver: "sqlite", Store: slow{s.DB}})
	var over sync.WaitGroup
	over.Go(func() { x.Run(ctx) })
	if page, err := x.Find(ctx, search.Query{Limit: 1}); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("%v, %v, want %s", page, err, tga.StoreUnavailable)
	}
	if n := x.Behind(); n != s.Cursor() {
		t.Errorf("%d appends behind, want all %d", n, s.Cursor())
	}
	cancel()
	over.Wait()
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}
