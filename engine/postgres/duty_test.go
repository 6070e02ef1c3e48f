package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
)

// late ends the session that is on duty, as far as the others can tell: its process did not renew it in time.
func late(t *testing.T, dsn string, shard int32, duty string) {
	t.Helper()
	if _, err := connect(t, dsn).Exec(bg, `UPDATE tgad.sessions SET lease = '0', expires = clock_timestamp() - interval '1 s'
		WHERE shard = $1 AND session = (SELECT session FROM tgad.duties WHERE shard = $1 AND duty = $2)`, shard, duty); err != nil {
		t.Fatal(err)
	}
}

// taken waits until a process is on duty, and returns what was kept.
func taken(t *testing.T, d *postgres.Duty) string {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		kept, mine, err := d.Take(bg)
		if err != nil || time.Now().After(until) {
			t.Fatalf("on duty: %v, %v", mine, err)
		}
		if mine {
			return string(kept)
		}
	}
}

// TestStaleProcessRemembersNothing: two processes are on duty one after the other. The first cannot change the state that the
// second has kept, whatever it knows and in whichever session, and it cannot put a third process on duty.
func TestStaleProcessRemembersNothing(t *testing.T) {
	dsn, shard := database(t)
	o := postgres.Options{Shard: shard, Lease: time.Second}
	a, b := open(t, dsn, o), open(t, dsn, o)
	x, y, third := a.Fleet().Duty("d"), b.Fleet().Duty("d"), b.Fleet().Duty("d")
	if err := x.Keep(bg, []byte("0")); !errors.Is(err, postgres.ErrNotOnDuty) {
		t.Errorf("kept by a process that never was on duty: %v", err)
	}
	if kept, mine, err := x.Take(bg); err != nil || !mine || kept != nil {
		t.Fatalf("%q, %v, %v", kept, mine, err)
	}
	if err := x.Keep(bg, []byte("1")); err != nil {
		t.Fatal(err)
	}
	if kept, mine, err := x.Take(bg); err != nil || !mine || string(kept) != "1" {
		t.Errorf("asked again: %q, %v, %v", kept, mine, err)
	}
	if kept, mine, err := y.Take(bg); err != nil || mine || string(kept) != "1" {
		t.Errorf("two are on duty, or the other one does not see what is kept: %q, %v, %v", kept, mine, err)
	}
	if kept, mine, err := b.Fleet().Duty("other").Take(bg); err != nil || !mine || kept != nil {
		t.Errorf("another duty: %q, %v, %v", kept, mine, err)
	}
	on, cancel := x.While(bg)
	defer cancel()
	if on.Err() != nil {
		t.Errorf("on duty: %v", context.Cause(on))
	}
	late(t, dsn, shard, "d")
	if kept := taken(t, y); kept != "1" {
		t.Errorf("its successor finds %q", kept)
	}
	if err := y.Keep(bg, []byte("2")); err != nil {
		t.Fatal(err)
	}
	for range 40 { // its session is over, and then it has another one
		if err := x.Keep(bg, []byte("stale")); !errors.Is(err, postgres.ErrNotOnDuty) {
			t.Fatalf("a stale process keeps something: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	select {
	case <-on.Done():
	case <-time.After(20 * time.Second):
		t.Error("a stale process takes itself for the one on duty")
	}
	if err := x.Leave(bg); err != nil {
		t.Error(err)
	}
	if kept, mine, err := x.Take(bg); err != nil || mine || string(kept) != "2" {
		t.Errorf("it let itself in again, or what is kept has gone back: %q, %v, %v", kept, mine, err)
	}
	if err := y.Leave(bg); err != nil {
		t.Fatal(err)
	}
	if kept := taken(t, x); kept != "2" {
		t.Errorf("after a leave it finds %q", kept)
	}
	if err := y.Keep(bg, []byte("left")); !errors.Is(err, postgres.ErrNotOnDuty) {
		t.Errorf("kept after a leave: %v", err)
	}
	if _, mine, err := third.Take(bg); err != nil || mine {
		t.Errorf("two are on duty: %v", err)
	}
}

// TestDutyEndsWithTheLease: a process that cannot renew its session stops by itself before another one may be on duty.
func TestDutyEndsWithTheLease(t *testing.T) {
	dsn, shard := database(t)
	a := open(t, dsn, postgres.Options{Shard: shard, Lease: time.Second})
	d := a.Fleet().Duty("d")
	if on, cancel := d.While(bg); on.Err() == nil {
		t.Error("on duty before it asked")
		cancel()
	}
	taken(t, d)
	on, cancel := d.While(bg)
	defer cancel()
	c := connect(t, dsn)
	tx, err := c.Begin(bg)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(bg)
	if _, err := tx.Exec(bg, "UPDATE tgad.sessions SET name = name WHERE shard = $1", shard); err != nil { // no renewal comes through
		t.Fatal(err)
	}
	select {
	case <-on.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("it takes itself for the one on duty, and cannot renew its session")
	}
	var over bool
	if err := tx.QueryRow(bg, "SELECT expires < clock_timestamp() FROM tgad.sessions WHERE shard = $1 AND NOT ended", shard).Scan(&over); err != nil || over {
		t.Errorf("the lease was over before it stopped: %v, %v", over, err)
	}
}

// TestDutyMovesWithItsStore: the kept state moves with the store. A process that does not know of the move can keep nothing on the
// old shard.
func TestDutyMovesWithItsStore(t *testing.T) {
	x := newMoving(t)
	old := x.bound(x.one).Fleet().Duty("d")
	taken(t, old)
	if err := old.Keep(bg, []byte("kept")); err != nil {
		t.Fatal(err)
	}
	x.moved(x.there())
	if err := old.Keep(bg, []byte("late")); err == nil {
		t.Error("a process that has not heard of the move keeps something")
	}
	if _, mine, err := old.Take(bg); mine {
		t.Errorf("a process at the old place is on duty: %v", err)
	}
	if kept := taken(t, x.bound(x.two).Fleet().Duty("d")); kept != "kept" {
		t.Errorf("at the new place it finds %q", kept)
	}
}

// TestWhoIsInterruptedIsNotOnDuty: a process that is interrupted while it asks learns that it is on duty, or it is not on duty.
// Otherwise it would do nothing and keep the others from the duty for as long as its session lasts.
func TestWhoIsInterruptedIsNotOnDuty(t *testing.T) {
	t.Parallel()
	dsn, shard := database(t)
	a, b := open(t, dsn, postgres.Options{Shard: shard}), open(t, dsn, postgres.Options{Shard: shard})
	x, y := a.Fleet().Duty("d"), b.Fleet().Duty("d")
	began := time.Now()
	if _, mine, err := x.Take(bg); err != nil || !mine {
		t.Fatal(mine, err)
	}
	took := time.Since(began)
	if err := x.Leave(bg); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(bg)
	cancel()
	if _, mine, err := x.Take(bg); err != nil || !mine {
		t.Fatal(mine, err)
	}
	if err := x.Leave(over); err != nil { // as who is stopped before it has begun
		t.Error(err)
	}
	interrupted := 0
	for i := range 100 {
		ctx, cancel := context.WithTimeout(bg, took*time.Duration(i)/100)
		_, mine, err := x.Take(ctx)
		cancel()
		if mine {
			err = x.Leave(bg)
		} else if err != nil {
			interrupted++
			err = nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, mine, err := y.Take(bg); err != nil || !mine {
			t.Fatalf("after %d interruptions, at %v: nobody is on duty, and the other process neither: %v", interrupted, took*time.Duration(i)/100, err)
		}
		if err := y.Leave(bg); err != nil {
			t.Fatal(err)
		}
	}
}
