package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// beganIn is a trace id of a month.
func beganIn(year int, month time.Month) tga.ID {
	id := storetest.NewID()
	ms := time.Date(year, month, 7, 0, 0, 0, 0, time.UTC).UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// all is an archive that takes everything.
func all(_ context.Context, _ *postgres.Store, ids []tga.ID) ([]tga.ID, error) { return ids, nil }

// TestRetiredMonthKeepsItsChain: the partition of a month that is over is dropped with the contents of its entries, once
// these are archived. The proof of each trace stays, and so do the ledger keys. A month stays as it is if it has an open
// trace or a trace that is in no archive, or if others add to it meanwhile.
func TestRetiredMonthKeepsItsChain(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	dsn := pgserver.DSN(p)
	const year, month = 2024, time.March
	for _, m := range []string{"2024-03-01", "2024-04-01"} {
		query(t, p, "SELECT coalesce(tgad.make_partition($1::date)::text, '')", m)
	}
	s := open(t, dsn, postgres.Options{})
	tools := &outside{sends: map[string]int{}}
	rt := governed(t, s, tools)
	call := func(key string) tga.ID {
		id := beganIn(year, month)
		if res, err := rt.Call(bg, runtime.Request{TraceID: id, Server: "payments", Tool: "charge", Key: key}); err != nil || res.State != tga.Completed {
			t.Fatalf("%v, %v", res.State, err)
		}
		return id
	}
	ids := []tga.ID{call("one"), call("two")}
	carried := func() string {
		return query(t, p, "SELECT count(*)::text FROM tgad.entries WHERE trace = ANY ($1) AND parts IS NOT NULL", [][16]byte{ids[0], ids[1]})
	}
	retire := func(m time.Month, archive func(context.Context, *postgres.Store, []tga.ID) ([]tga.ID, error)) (postgres.Retired, error) {
		return postgres.Retire(bg, dsn, postgres.Options{}, postgres.Retiring{Year: year, Month: m, Archive: archive})
	}
	refused := func(why string, code tga.Code, err error) {
		t.Helper()
		if !errors.Is(err, code) || carried() != "8" {
			t.Errorf("%s: %v, and %s of 8 entries have what they carry", why, err, carried())
		}
	}

	pending := beganIn(year, month)
	begun, err := rt.Begin(bg, runtime.BeginRequest{Request: runtime.Request{TraceID: pending, Server: "remote", Tool: "pay", Key: "open"}, BeginID: "id"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = retire(month, all)
	refused("a trace is open", tga.StateInvalidTransition, err)
	if _, err := rt.Finish(bg, pending, begun.Permit, runtime.Finished{Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`1`)}}); err != nil {
		t.Fatal(err)
	}
	if err := p.Exec(fmt.Sprintf(`INSERT INTO tgad.attachments VALUES (0, %d, decode('0000000000000000%x', 'hex'), 'x')`, 'q', pending[:])); err != nil {
		t.Fatal(err)
	}
	_, err = retire(month, all)
	refused("a timer waits", tga.StateInvalidTransition, err)
	if err := p.Exec("DELETE FROM tgad.attachments WHERE value = 'x'"); err != nil {
		t.Fatal(err)
	}
	_, err = retire(month, func(_ context.Context, _ *postgres.Store, ids []tga.ID) ([]tga.ID, error) { return ids[1:], nil })
	refused("a trace is in no archive", tga.StateInvalidTransition, err)
	_, err = retire(month, func(context.Context, *postgres.Store, []tga.ID) ([]tga.ID, error) { return nil, nil })
	refused("no trace is in an archive", tga.StateInvalidTransition, err)
	var late tga.ID
	_, err = retire(month, func(_ context.Context, _ *postgres.Store, ids []tga.ID) ([]tga.ID, error) {
		late = call("late") // while the others are archived
		return ids, nil
	})
	refused("a trace came after the archive", tga.StateInvalidTransition, err)
	_, err = retire(month, func(context.Context, *postgres.Store, []tga.ID) ([]tga.ID, error) {
		return nil, tga.Errorf(tga.StoreUnavailable, "full")
	})
	refused("the archive fails", tga.StoreUnavailable, err)
	now := time.Now().UTC()
	_, err = postgres.Retire(bg, dsn, postgres.Options{}, postgres.Retiring{Year: now.Year(), Month: now.Month(), Archive: all})
	refused("the month is not over", tga.ValidationError, err)
	_, err = retire(time.May, all)
	refused("the month has no partition", tga.NotFound, err)

	done, err := retire(month, all)
	if err != nil || done.Traces != 4 || done.Entries != 16 || carried() != "0" {
		t.Fatalf("%+v, %v, and %s entries have what they carry", done, err, carried())
	}
	stays(t, p, dsn, append(ids, pending, late))
	if again, err := retire(month, all); err != nil || again.Traces != 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
	if res, err := governed(t, open(t, dsn, postgres.Options{}), tools).Call(bg, runtime.Request{Server: "payments", Tool: "charge", Key: "one"}); !errors.Is(err, tga.IdempotencyKeyExpired) || tools.of("one") != 1 {
		t.Errorf("a key whose answer is gone: %+v %v, and %d sends", res, err, tools.of("one"))
	}
	call("new") // the partition takes entries again
	t.Run("others add to the month", func(t *testing.T) { retireBeside(t, p, retire) })
}

// stays checks that of traces all is there but what their entries carried, for a process that knows nothing of them.
func stays(t *testing.T, p *pgserver.Server, dsn string, ids []tga.ID) {
	t.Helper()
	fresh := open(t, dsn, postgres.Options{})
	for _, id := range ids {
		n := 0
		for e, err := range fresh.Entries(bg, id, 0) {
			if n++; err != nil || e.Artifact != nil || len(e.Documents) != 0 {
				t.Errorf("entry %d: %v, %v", e.Seq, e.Artifact, err)
			}
		}
		if tr, err := fresh.Load(bg, id); err != nil || n != 4 || tr.Head.State != tga.Completed {
			t.Errorf("%d entries, %v", n, err)
		}
	}
	if r, err := fresh.Fleet().Check(bg); err != nil || len(r.Problems) != 0 || r.Records != 4 {
		t.Errorf("check: %+v, %v", r, err)
	}
	err := p.Exec("UPDATE tgad.entries SET header = ''")
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Code != "TG001" {
		t.Errorf("a header of the new partition can be changed: %v", err)
	}
}

// retireBeside retires a month to which another transaction is about to add, and then one that others read.
func retireBeside(t *testing.T, p *pgserver.Server, retire func(time.Month, func(context.Context, *postgres.Store, []tga.ID) ([]tga.ID, error)) (postgres.Retired, error)) {
	s := open(t, pgserver.DSN(p), postgres.Options{})
	rt := governed(t, s, &outside{sends: map[string]int{}})
	if _, err := rt.Call(bg, runtime.Request{TraceID: beganIn(2024, time.April), Server: "payments", Tool: "charge", Key: "april"}); err != nil {
		t.Fatal(err)
	}
	for adds, want := range map[bool]string{true: "1 entries came meanwhile", false: "others have the table"} {
		c := connect(t, pgserver.DSN(p))
		tx, err := c.Begin(bg)
		if err != nil {
			t.Fatal(err)
		}
		if adds {
			_, err = tx.Exec(bg, "INSERT INTO tgad.entries VALUES (7, $1, 1, '', NULL, NULL)", [16]byte(beganIn(2024, time.April)))
		} else {
			_, err = tx.Exec(bg, "SELECT 1 FROM tgad.entries")
		}
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := retire(time.April, all)
			ended <- err
		}()
		if adds {
			until(t, "the swap waits", func() bool {
				return query(t, p, "SELECT count(*)::text FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'") != "0"
			})
			err = tx.Commit(bg)
		}
		rerr := <-ended
		if !adds {
			err = tx.Rollback(bg)
		}
		if err != nil || !errors.Is(rerr, tga.StateLockAcquireFailed) || !strings.Contains(rerr.Error(), want) {
			t.Errorf("%v, want %q: %v", rerr, want, err)
		}
	}
	if n := query(t, p, "SELECT count(*)::text FROM tgad.entries WHERE shard = 0 AND trace >= tgad.first_trace('2024-04-01') AND trace < tgad.first_trace('2024-05-01') AND parts IS NOT NULL"); n != "4" {
		t.Errorf("%s of 4 entries have what they carry", n)
	}
}

// TestRetiringLeavesOldCopies: when a month is retired, the old copy of a store that has moved away keeps its contents, because the
// store may move back. Only stores that are on this shard are retired.
func TestRetiringLeavesOldCopies(t *testing.T) {
	x := newMoving(t)
	const year, month = 2023, time.May
	for _, s := range []*pgserver.Server{x.one, x.two} {
		query(t, s, "SELECT coalesce(tgad.make_partition('2023-05-01'::date)::text, '')")
	}
	here := newMoving(t)
	tools := &outside{sends: map[string]int{}}
	_, s := x.routed()
	for _, y := range []*moving{x, here} {
		r := y.charge("old")
		r.TraceID = beganIn(year, month)
		at := s
		if y == here {
			at = here.bound(here.one)
		}
		if _, err := governed(t, at, tools).Call(bg, r); err != nil {
			t.Fatal(err)
		}
	}
	x.begun(s) // open, and elsewhere
	x.moved(x.there())
	done, err := postgres.Retire(bg, pgserver.DSN(x.one), quiet, postgres.Retiring{Year: year, Month: month, Archive: all})
	if err != nil || done.Traces != 1 || done.Entries != 8 {
		t.Errorf("%+v, %v", done, err)
	}
	const carried = "SELECT count(*)::text FROM tgad.entries WHERE shard = $1 AND parts IS NOT NULL AND trace < '018a0000-0000-0000-0000-000000000000'"
	if old, own := query(t, x.one, carried, x.store), query(t, x.one, carried, here.store); old != "4" || own != "0" {
		t.Errorf("%s entries of the old copy carry something, %s of the store that is here", old, own)
	}
	x.moved(x.back())
}

// TestMoveBesideARetirementKeepsItsCopy: a store moves away while a month of it is retired. What is left of it here keeps its contents,
// because the store may move back.
func TestMoveBesideARetirementKeepsItsCopy(t *testing.T) {
	x := newMoving(t)
	query(t, x.one, "SELECT coalesce(tgad.make_partition('2023-06-01'::date)::text, '')")
	r := x.charge("old")
	r.TraceID = beganIn(2023, time.June)
	if _, err := governed(t, x.bound(x.one), &outside{sends: map[string]int{}}).Call(bg, r); err != nil {
		t.Fatal(err)
	}
	tx, err := connect(t, pgserver.DSN(x.one)).Begin(bg)
	if err == nil {
		_, err = tx.Exec(bg, "SELECT 1 FROM tgad.entries LIMIT 1") // the end of the retirement waits for it
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := postgres.Retire(bg, pgserver.DSN(x.one), quiet, postgres.Retiring{Year: 2023, Month: time.June, Archive: all})
		ended <- err
	}()
	until(t, "the end of the retirement waits", func() bool {
		return query(t, x.one, "SELECT count(*)::text FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'") != "0"
	})
	err = x.one.Exec(fmt.Sprintf("UPDATE tgad.placements SET state = 'gone', epoch = epoch + 1, owner = 'two' WHERE store = %d", x.store))
	if err = errors.Join(err, tx.Rollback(bg)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, tga.StateLockAcquireFailed) {
		t.Errorf("retire: %v", err)
	}
	if n := query(t, x.one, "SELECT count(*)::text FROM tgad.entries WHERE shard = $1 AND parts IS NOT NULL", x.store); n != "4" {
		t.Errorf("%s of 4 entries have what they carry", n)
	}
}

// TestErasureAfterARetirement: a call whose month was retired still has evidence beside it. An erasure takes that, with its key, and
// leaves its note. The next one finds nothing.
func TestErasureAfterARetirement(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	dsn := pgserver.DSN(p)
	query(t, p, "SELECT coalesce(tgad.make_partition('2024-05-01'::date)::text, '')")
	ring := new(chaintest.Ring)
	o := postgres.Options{Keyring: ring}
	s := open(t, dsn, o)
	id := beganIn(2024, time.May)
	res, err := governed(t, s, &outside{sends: map[string]int{}}).Call(bg, runtime.Request{TraceID: id, Server: "payments", Tool: "charge", Key: "k"})
	if err != nil || res.State != tga.Completed {
		t.Fatalf("%v, %v", res.State, err)
	}
	value := []byte("what the tool server says")
	digest := tga.Sum(value)
	evidence := chain.Attachment{Kind: chain.AttachBlob, Key: keyspace.EvidenceKey(digest, id), Value: value}
	lease, err := s.Acquire(bg, id)
	if err == nil {
		_, err = s.Append(bg, lease, chain.Batch{Attachments: []chain.Attachment{evidence},
			Notes: []chain.NewNote{{Kind: tga.NoteDoubt, Who: "tgad", Body: []byte(`{"answer":"unknown","evidence_digest":"` + digest.String() + `"}`)}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Release(lease)
	if done, err := postgres.Retire(bg, dsn, o, postgres.Retiring{Year: 2024, Month: time.May, Archive: all}); err != nil || done.Traces != 1 {
		t.Fatalf("retire: %+v, %v", done, err)
	}
	stored := func() string {
		return query(t, p, "SELECT count(*)::text FROM tgad.attachments WHERE kind = $1 AND key = $2", int16(evidence.Kind), evidence.Key)
	}
	if stored() != "1" {
		t.Fatal("the evidence is not there")
	}
	until(t, "the release", func() bool { return query(t, p, "SELECT session::text FROM tgad.heads") == "0" })
	for _, want := range []chain.Erased{{Traces: 1, Keys: 1, Unsealed: 1}, {Already: 1}} {
		done, err := s.Fleet().Erase(bg, byOperator(chain.Erasure{Traces: []tga.ID{id}}))
		if err != nil || !reflect.DeepEqual(done, want) || stored() != "0" {
			t.Errorf("erased %+v, %v, want %+v; evidence rows: %s", done, err, want, stored())
		}
		until(t, "the release", func() bool { return query(t, p, "SELECT session::text FROM tgad.heads") == "0" })
	}
	if !isErased(t, s, id) {
		t.Error("the trace does not say that it was erased")
	}
	checked(t, s)
}
