package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// exported is an export of the named traces, or of all in the order of their first entries.
func exported(t testing.TB, db *engine.DB, ids ...tga.ID) []byte {
	t.Helper()
	if newest := db.Cursor(); len(ids) == 0 && newest > 0 {
		for l, err := range db.Follow(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if l.FirstSeq == 1 && l.Entries > 0 {
				ids = append(ids, l.TraceID)
			}
			if l.Index == newest {
				break
			}
		}
	}
	var b bytes.Buffer
	for _, id := range ids {
		if err := ndjson.Write(&b, id, db.Entries(context.Background(), id, 0), db.Notes(context.Background(), id, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := ndjson.End(&b, len(ids)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func importing(ctx context.Context, export []byte, dir string, o engine.Options) error {
	return engine.Import(ctx, dir, o, func(add func([]chain.Entry, []tga.Note) error) error {
		_, err := ndjson.Each(bytes.NewReader(export), add)
		return err
	})
}

// imported is a store made of an export, open.
func imported(t *testing.T, fs vfs.FS, export []byte) *engine.DB {
	t.Helper()
	if err := errors.Join(fs.RemoveAll("imported"), importing(t.Context(), export, "imported", options(fs))); err != nil {
		t.Fatal(err)
	}
	return open(t, "imported", options(fs))
}

// TestImportedStoreHasWhatTheExportHas: bytes, digests, ledger and the order of the traces are those
// of the store that was exported, also where that had archived them. It is another store, it is
// frozen, and its epochs come after those that it was given.
func TestImportedStoreHasWhatTheExportHas(t *testing.T) {
	serial.Test(t)
	fs := vfs.NewMem()
	db := open(t, "store", options(fs))
	for i := range uint64(6) {
		run(t, db, spec{trace: id(i + 1), key: fmt.Sprint("key-", i+1), documents: noisy(i, 10)})
	}
	if done, err := db.SealTraces(t.Context(), start+1); err != nil || done.Traces != 6 {
		t.Fatalf("%+v %v", done, err)
	}
	run(t, db, spec{trace: id(100), key: "key-100", documents: noisy(100, 20_000)})
	first := acquire(t, db, id(200))
	append_(t, db, first, spec{trace: id(200)}.make(t).begin())
	db.Release(first)
	lease, err := db.Overtake(t.Context(), id(200), false) // a note that comes before the effect, under a later epoch
	if err != nil {
		t.Fatal(err)
	}
	append_(t, db, lease, chain.Batch{Notes: []chain.NewNote{{Kind: "remark", Who: "tester", Body: []byte(`{"n":1}`)}}})
	append_(t, db, lease, spec{trace: id(200)}.make(t).end())
	append_(t, db, lease, chain.Batch{Notes: []chain.NewNote{{Kind: "remark", Who: "tester", Body: []byte(`{"n":2}`)}, {Kind: "remark", Who: "tester", Body: []byte(`{}`)}}})
	append_(t, db, acquire(t, db, id(201)), spec{trace: id(201)}.make(t).begin())
	export := exported(t, db)
	got := imported(t, fs, export)
	if again := exported(t, got); !bytes.Equal(again, export) {
		t.Errorf("its export is another file, %d bytes, want %d", len(again), len(export))
	}
	was, is := db.Stats(), got.Stats()
	if is.StoreID == was.StoreID || got.Secret() == db.Secret() || !is.Restored || !strings.Contains(is.Frozen, "imported from an export") {
		t.Errorf("%+v", is)
	}
	for _, n := range []uint64{1, 100, 200, 201} {
		key := spec{trace: id(n)}
		if n < 200 {
			key.key = fmt.Sprint("key-", n)
		}
		want, err := db.Record(t.Context(), key.ledgerKey())
		have, herr := got.Record(t.Context(), key.ledgerKey())
		if err = errors.Join(err, herr); err != nil || want == nil || have == nil || *want != *have {
			t.Errorf("key of trace %d: %+v, want %+v, %v", n, have, want, err)
		}
	}
	if _, err := got.Acquire(t.Context(), id(300)); !errors.Is(err, tga.StoreUnavailable) {
		t.Errorf("a lease of a frozen store: %v", err)
	}
	if !got.Departed(lease.Epoch) {
		t.Error("the epoch of an entry is not one of an earlier process")
	}
	if err := got.Unfreeze(t.Context(), true, "me"); err != nil {
		t.Fatal(err)
	}
	if next := acquire(t, got, id(300)); next.Epoch <= lease.Epoch {
		t.Errorf("epoch %#x follows %#x", next.Epoch, lease.Epoch)
	}
	if since, in := got.Quarantined(); !in || since <= start {
		t.Errorf("quarantined %v since %s", in, since)
	}
}

// TestEpochsOfAnImportComeBefore: a store that was opened often has later epochs than a new one.
func TestEpochsOfAnImportComeBefore(t *testing.T) {
	fs := vfs.NewMem()
	var last chain.Lease
	for i := range uint64(5) {
		db, err := engine.Open("store", options(fs))
		if err != nil {
			t.Fatal(err)
		}
		last = acquire(t, db, id(i+1))
		append_(t, db, last, spec{trace: id(i + 1)}.make(t).begin())
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	got := imported(t, fs, exported(t, open(t, "store", options(fs))))
	if !got.Departed(last.Epoch) {
		t.Errorf("epoch %#x is not one of an earlier process", last.Epoch)
	}
}

// TestImportFindsWhoHadAKeyLast: of the traces of one key the record is that of the last one, in
// whichever order the export has them.
func TestImportFindsWhoHadAKeyLast(t *testing.T) {
	serial.Test(t)
	failed := spec{key: "k", status: tga.StatusFailure, class: ledger.ClassRetryable.String()}
	first, second, third := failed, failed, spec{key: "k", retryOf: id(2)}
	first.trace, second.trace, third.trace = id(1), id(2), id(3)
	second.retryOf = id(1)
	lost := failed
	lost.trace, lost.retryOf = id(3), id(2)
	for n, all := range [][]spec{{first, second}, {first, second, third}, {first, second, lost}} {
		o := options(vfs.NewMem())
		tick := start
		o.Clock = func() time.Time { tick += tga.Millis(n); return tick.Time() } // in the first one all in one millisecond
		db := open(t, "store", o)
		run(t, db, all...)
		want, err := db.Record(t.Context(), first.ledgerKey())
		if err != nil {
			t.Fatal(err)
		}
		ids := []tga.ID{id(1), id(2), id(3)}[:len(all)]
		for _, order := range permutations(ids) {
			got := imported(t, vfs.NewMem(), exported(t, db, order...))
			if rec, err := got.Record(t.Context(), first.ledgerKey()); err != nil || rec == nil || *rec != *want {
				t.Errorf("%d, %v: %+v, want %+v, %v", n, order, rec, want, err)
			}
		}
	}
}

func permutations(ids []tga.ID) (all [][]tga.ID) {
	if len(ids) == 0 {
		return [][]tga.ID{nil}
	}
	for i := range ids {
		for _, rest := range permutations(append(slices.Clone(ids[:i]), ids[i+1:]...)) {
			all = append(all, append([]tga.ID{ids[i]}, rest...))
		}
	}
	return all
}

// TestNoExportThatIsNotOneStores: a trace that comes twice, two traces that both hold a key, a line
// that was changed, left out, exchanged or cut, and an export behind an export. The error has the
// line and no store is left.
func TestNoExportThatIsNotOneStores(t *testing.T) {
	serial.Test(t)
	fs := vfs.NewMem()
	db := open(t, "store", options(fs))
	run(t, db, spec{trace: id(1)}, spec{trace: id(2)})
	append_(t, db, acquire(t, db, id(2)), chain.Batch{Notes: []chain.NewNote{{Kind: "remark", Who: "tester", Body: []byte(`{"n":1}`)}, {Kind: "remark", Who: "tester", Body: []byte(`{"n":2}`)}}})
	other := open(t, "other", options(fs))
	run(t, other, spec{trace: id(9), key: "key-" + id(1).String()})
	whole := exported(t, db)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	lines = lines[:len(lines)-1]
	refused := func(what string, file []byte, code tga.Code, says string) {
		t.Helper()
		err := importing(t.Context(), file, "refused", options(fs))
		wantCode(t, err, code)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
		for _, name := range []string{"refused", "refused.partial"} {
			if _, err := fs.Stat(name); err == nil {
				t.Errorf("%s: %s was left", what, name)
			}
		}
	}
	end := func(n int) []byte { return fmt.Appendf(nil, `{"kind":"end","traces":%d}`+"\n", n) }
	one := bytes.Join(lines[:9], nil) // of trace 1
	refused("doubled", slices.Concat(one, one, end(2)), tga.ValidationError, "line 18, trace "+id(1).String()+": trace "+id(1).String()+" came before")
	foreign := exported(t, other)
	foreign = foreign[:bytes.LastIndex(foreign[:len(foreign)-1], []byte("\n"))+1]
	refused("of two stores", slices.Concat(one, foreign, end(2)), tga.IdempotencyKeyConflict, "both hold key")
	refused("two exports", slices.Concat(whole, exported(t, other)), tga.SchemaViolation, fmt.Sprintf("line %d: ", len(lines)+1))
	refused("nothing", nil, tga.StateChecksumMismatch, "no end line")
	refused("no export", []byte("PK\x03\x04"), tga.ValidationError, "line 1: ")
	for i := range lines {
		without := slices.Concat(bytes.Join(lines[:i], nil), bytes.Join(lines[i+1:], nil))
		if err := importing(t.Context(), without, "refused", options(fs)); err == nil || tga.CodeOf(err) == tga.StoreUnavailable {
			t.Errorf("without line %d: %v", i+1, err)
		}
		if i+1 < len(lines) && i != 8 { // two traces may stand in either order
			swapped := slices.Concat(bytes.Join(lines[:i], nil), lines[i+1], lines[i], bytes.Join(lines[i+2:], nil))
			if err := importing(t.Context(), swapped, "refused", options(fs)); err == nil {
				t.Errorf("line %d behind the next", i+1)
			}
		}
		cut := slices.Concat(bytes.Join(lines[:i], nil), lines[i][:len(lines[i])/2])
		if err := importing(t.Context(), cut, "refused", options(fs)); err == nil {
			t.Errorf("cut in line %d", i+1)
		}
		if names, err := fs.List(""); err != nil || slices.Contains(names, "refused") || slices.Contains(names, "refused.partial") {
			t.Fatalf("line %d: %v %v", i+1, names, err)
		}
	}
	wantCode(t, importing(t.Context(), whole, "store", options(fs)), tga.ValidationError)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := importing(over, whole, "refused", options(fs)); !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: %v", err)
	}
}

// TestImportOfWhatWasErased: the proof of an erased trace is brought over, and its key is not known.
// A trace that is erased in part is refused, for its key's record would be an invention.
func TestImportOfWhatWasErased(t *testing.T) {
	fs := vfs.NewMem()
	db := open(t, "store", options(fs))
	run(t, db, spec{trace: id(1)}, spec{trace: id(2), documents: noisy(2, 10)})
	if _, err := db.Erase(t.Context(), engine.Erasure{Traces: []tga.ID{id(1)}, Who: "me", Reason: "ticket 1"}); err != nil {
		t.Fatal(err)
	}
	export := exported(t, db)
	got := imported(t, fs, export)
	if again := exported(t, got); !bytes.Equal(again, export) {
		t.Errorf("its export is another file, %d bytes, want %d", len(again), len(export))
	}
	if rec, err := got.Record(t.Context(), spec{trace: id(1)}.ledgerKey()); rec != nil || err != nil {
		t.Errorf("%+v, %v", rec, err)
	}
	if rec, err := got.Record(t.Context(), spec{trace: id(2)}.ledgerKey()); rec == nil || err != nil {
		t.Errorf("%+v, %v", rec, err)
	}
	for _, gone := range []int{0, 3} {
		err := engine.Import(t.Context(), "part", options(fs), func(add func([]chain.Entry, []tga.Note) error) error {
			var list []chain.Entry
			for e, err := range db.Entries(t.Context(), id(2), 0) {
				if err != nil {
					return err
				}
				list = append(list, e)
			}
			list[gone] = chaintest.Erase(list[gone])
			return add(list, nil)
		})
		wantCode(t, err, tga.ValidationError)
	}
}

// TestImportUnderAKeyring: the new store is sealed from its first byte, also where the one that was
// exported was not, and its ledger has the digests of its ring.
func TestImportUnderAKeyring(t *testing.T) {
	fs := vfs.NewMem()
	db := open(t, "store", readable(fs))
	run(t, db, spec{trace: id(1), args: `{"card":"4000 1234 5678"}`, subject: "ada"})
	export := exported(t, db)
	o := options(fs)
	o.Keyring = new(chaintest.Ring)
	fs = vfs.NewMem()
	o.FS = fs
	if err := importing(t.Context(), export, "store", o); err != nil {
		t.Fatal(err)
	}
	for _, name := range filesOf(t, fs, "log") {
		if bytes.Contains(content(t, fs, name), []byte("4000 1234 5678")) {
			t.Errorf("%s has it in the clear", name)
		}
	}
	got := open(t, "store", o)
	if again := exported(t, got); !bytes.Equal(again, export) {
		t.Error("its export is another file")
	}
	rec, err := got.Record(t.Context(), spec{trace: id(1)}.ledgerKey())
	plain, perr := db.Record(t.Context(), spec{trace: id(1)}.ledgerKey())
	if err = errors.Join(err, perr); err != nil || rec == nil || rec.RequestDigest == plain.RequestDigest {
		t.Errorf("%+v, %v", rec, err)
	}
}

// TestCrashInAnImport ends the process and the power at each write of an import: there is the whole
// store or none, and the import can be made again.
func TestCrashInAnImport(t *testing.T) {
	serial.Test(t)
	source := vfs.NewMem()
	db := open(t, "store", options(source))
	for i := range uint64(4) {
		run(t, db, spec{trace: id(i + 1), args: `{"fill":"` + noise(i, 400) + `"}`})
	}
	export := exported(t, db)
	var mu sync.Mutex
	var crashes []*crashmem.FS
	writes := 0
	disk := crashmem.New()
	rng := newRand(3)
	err := importing(t.Context(), export, "imported", options(errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			mu.Lock()
			defer mu.Unlock()
			if writes++; writes%4 > 0 && !serial.Whole() {
				return nil
			}
			crashes = append(crashes, disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: writes / 4 % 3 * 50, RNG: rng}))
		}
		return nil
	}))))
	if err != nil {
		t.Fatal(err)
	}
	wholes, nones := 0, 0
	for i, disk := range append(crashes, disk) {
		what := fmt.Sprintf("crash %d of %d", i+1, len(crashes))
		if _, err := disk.Stat("imported"); err == nil {
			wholes++
		} else {
			nones++
			if err := importing(t.Context(), export, "imported", options(disk)); err != nil {
				t.Fatalf("%s: again: %v", what, err)
			}
		}
		got, err := engine.Open("imported", options(disk))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got.Stats().Frozen == "" || !bytes.Equal(exported(t, got), export) {
			t.Errorf("%s: frozen %q, or another export", what, got.Stats().Frozen)
		}
		if err := got.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if wholes == 0 || nones < 10 {
		t.Errorf("%d whole stores, %d times none", wholes, nones)
	}
}

// TestTwoMakersOfOneDirectory: one of them makes it, and the other is told, whatever it is that they
// make.
func TestTwoMakersOfOneDirectory(t *testing.T) {
	serial.Test(t)
	dir := t.TempDir()
	db := open(t, dir+"/store", options(nil))
	for i := range uint64(20) {
		run(t, db, spec{trace: id(i + 1), args: `{"fill":"` + noise(i, 400) + `"}`})
	}
	export := exported(t, db)
	makers := map[string]func() error{
		"import": func() error { return importing(t.Context(), export, dir+"/made", options(nil)) },
		"backup": func() error { return db.Backup(t.Context(), dir+"/made") },
	}
	for round := range 5 {
		var busy sync.WaitGroup
		errs := make(chan error, 4)
		for range 2 {
			for _, f := range makers {
				busy.Go(func() { errs <- f() })
			}
		}
		busy.Wait()
		made := 0
		for range 4 {
			switch err := <-errs; tga.CodeOf(err) {
			case "":
				made++
			case tga.StateLockAcquireFailed, tga.ValidationError:
			default:
				t.Errorf("round %d: %v", round, err)
			}
		}
		if made == 0 {
			t.Errorf("round %d: nobody made it", round)
		}
		got, err := engine.OpenReadOnly(dir+"/made", options(nil))
		if err != nil {
			t.Fatal(err)
		}
		check(t, got)
		names, err := vfs.Default.List(dir)
		if err = errors.Join(err, got.Close(), vfs.Default.RemoveAll(dir+"/made")); err != nil || slices.Contains(names, "made.partial") {
			t.Fatal(names, err)
		}
	}
}
