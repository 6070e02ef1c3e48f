package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/internal/search/searchtest"
	"github.com/tgad/tgad/internal/search/sqlite"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// stand is a store with an index of lists.
type stand struct {
	searchtest.Stand
	*engine.DB
	dir, data string
	x         *search.Index
	stop      func()
}

func newStand(t *testing.T) *stand {
	dir := t.TempDir()
	s := &stand{dir: filepath.Join(dir, "search"), data: filepath.Join(dir, "data"), stop: func() {}}
	s.Stand = searchtest.Stand{T: t, Now: searchtest.Start, Each: 30, Limits: []int{1, 7, 1000}, Stored: s.all, Lists: func() []search.Lists { return []search.Lists{s.x} }}
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
		Clock: func() time.Time { return time.UnixMilli(int64(s.Now)) },
	}); err != nil {
		s.Fatal(err)
	}
	s.Store = s.DB
}

// start makes the index serve, and stop ends that.
func (s *stand) start() {
	s.x = search.New(context.Background(), search.Options{Table: sqlite.In(s.dir, "sqlite"), Store: s.DB})
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

// crash leaves of the index what is on the disk now.
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

// TestIndexIsAFunctionOfTheLog: whatever happens to the index and to the store, a list equals that of the
// log.
func TestIndexIsAFunctionOfTheLog(t *testing.T) {
	s := newStand(t)
	do := func(f func()) func(*searchtest.Stand, []tga.ID) { return func(*searchtest.Stand, []tga.ID) { f() } }
	searchtest.FunctionOfTheLog(&s.Stand, []searchtest.Step{
		{Name: "closed", Do: do(func() { s.stop(); s.Some(20); s.start() })},
		{Name: "crashed", Do: do(s.crash)},
		{Name: "lost", Do: do(func() { s.stop(); removeAll(t, s.dir); s.start() })},
		{Name: "damaged", Do: do(func() { s.stop(); damage(t, s.dir, 0); s.start() })},
		{Name: "damaged later", Do: do(func() { s.stop(); damage(t, s.dir, 5000); s.start() })},
		{Name: "of another", Do: do(func() { s.stop(); another(t, s.dir); s.start() })},
		{Name: "an erasure", Do: func(_ *searchtest.Stand, finished []tga.ID) { s.erase(finished[:1]) }},
		{Name: "a whole erasure", Do: do(func() { s.erase(nil) })},
	}...)
}

func removeAll(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// damage overwrites a part of the database.
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

// another replaces this store's index by that of another store.
func another(t *testing.T, dir string) {
	t.Helper()
	o := newStand(t)
	for range 5 {
		o.Add(chaintest.Options{Tool: "elsewhere"})
	}
	o.Agrees(search.Query{Limit: 100})
	o.stop()
	removeAll(t, dir)
	if err := os.CopyFS(dir, os.DirFS(o.dir)); err != nil {
		t.Fatal(err)
	}
}

// erase erases traces by name, or all that are finished.
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
	s.Add(chaintest.Options{}) // what is found from here on is from after the crash
}

// has reports whether any file of the index contains a text.
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

// TestErasedNamesLeaveTheIndex: after an erasure no file of the index has the erased names, whether the
// erasure named its traces or not, and however it ended.
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
				s.dir = filepath.Join(t.TempDir(), "search") // the directory as it is on the disk now
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
		for range 40 { // fills more than one page
			s.Add(chaintest.Options{})
		}
		id := s.Add(chaintest.Options{Tool: secret})
		s.Agrees(search.Query{Tool: secret, Limit: 10})
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
		s.Agrees(search.Query{Tool: secret, Limit: 10})
		s.Agrees(search.Query{Limit: 10})
	}
}

// TestIndexThatCannotBeMadeSaysSo: an index that cannot be made is reported, and is made once that is
// possible.
func TestIndexThatCannotBeMadeSaysSo(t *testing.T) {
	s := newStand(t)
	s.Add(chaintest.Options{})
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
	s.Agrees(search.Query{Limit: 10})
}

// TestTraceWhoseKeyIsAwayIsListedLater: a trace that cannot be read because the ring lacks its key does not
// keep other traces out of the lists. It is listed once the ring has the key, without an append.
func TestTraceWhoseKeyIsAwayIsListedLater(t *testing.T) {
	ring, data := new(chaintest.Ring), filepath.Join(t.TempDir(), "data")
	open := func() *engine.DB {
		db, err := engine.Open(data, engine.Options{Create: true, LowWaterBytes: 1, Logger: slog.New(slog.DiscardHandler), Keyring: ring})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	db := open()
	var keys []chain.KeyID
	for seed := range uint64(3) {
		made := chaintest.New(chaintest.Options{Seed: seed + 1})
		lease, err := db.Acquire(t.Context(), made.ID)
		if err != nil {
			t.Fatal(err)
		}
		for i := range made.Entries {
			e := &made.Entries[i]
			if _, err := db.Append(t.Context(), lease, chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: e.Artifact, Documents: e.Documents}}}); err != nil {
				t.Fatal(err)
			}
		}
		db.Release(lease)
		for e, err := range db.Entries(t.Context(), made.ID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, e.Key)
			break
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open() // which has no memory of them
	ring.Lose(keys[0])
	x := search.New(t.Context(), search.Options{Table: sqlite.In(filepath.Join(t.TempDir(), "search"), "sqlite"), Store: db, Again: 20 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var over sync.WaitGroup
	over.Go(func() { x.Run(ctx) })
	defer func() {
		cancel()
		over.Wait()
		if err := errors.Join(x.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	}()
	listed := func(want int) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			page, err := x.Find(t.Context(), search.Query{Limit: 10})
			if err == nil && len(page) == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d traces are listed, %v, want %d", len(page), err, want)
			}
		}
	}
	listed(2)
	ring.Lose(0)
	listed(3)
}

// TestBrokenIndexIsMadeAnew: damage in a part that only lists read is found only by a list. The list reports
// it, and the index is made again from the log, although nothing is appended.
func TestBrokenIndexIsMadeAnew(t *testing.T) {
	s := newStand(t)
	s.Add(chaintest.Options{})
	s.Agrees(search.Query{Limit: 10})
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
	s.Agrees(search.Query{Limit: 10})
}

// TestHalfAnIndexIsNotShown: while the index is being made, its lists would leave traces out.
func TestHalfAnIndexIsNotShown(t *testing.T) {
	s := newStand(t)
	s.Add(chaintest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	x := search.New(ctx, search.Options{Table: sqlite.In(filepath.Join(t.TempDir(), "search"), "sqlite"), Store: searchtest.Slow{Store: s.DB}})
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
