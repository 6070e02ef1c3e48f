package serving_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/tgad/tgad/engine/postgres/internal/serving"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/witness"
	"github.com/tgad/tgad/schemas/tga"
)

// TestStoppedSignerKeepsNothing: a process that stood still while another one took over signs nothing when it goes on.
func TestStoppedSignerKeepsNothing(t *testing.T) {
	s := newStand(t)
	a := s.open()
	a.append()
	a.covered(2)
	b := s.open()
	a.stop() // it looks no more, and its session seems to be late
	s.exec("UPDATE tgad.sessions SET lease = '0', expires = clock_timestamp() - interval '1 s' WHERE shard = $1 AND session = (SELECT session FROM tgad.duties WHERE shard = $1 AND duty = 'evidence')", s.shard)
	b.append()
	c := b.covered(4)
	if b.SignedAt().IsZero() {
		t.Fatal("another process signs")
	}
	a.append()
	if err := a.Keeper.Close(); err != nil { // it makes a last checkpoint, if it may
		t.Error(err)
	}
	b.covered(c.Size + 2)
	c2, _ := a.Newest()
	if got, err := checkpoint.Unverified(c2); err != nil || got.Size > 2 {
		t.Errorf("it signed %v, %v", got, err)
	}
	s.oneLine()
	var epochs []int64
	if err := s.owner().QueryRow(t.Context(), "SELECT array_agg(DISTINCT epoch ORDER BY epoch) FROM tgad.signed_notes WHERE shard = $1", s.shard).Scan(&epochs); err != nil || len(epochs) != 2 {
		t.Errorf("epochs %v, %v", epochs, err)
	}
}

// TestKeyOfAFleetIsHandedOver: the processes are started again with another key, one after the other.
func TestKeyOfAFleetIsHandedOver(t *testing.T) {
	s := newStand(t)
	old := s.options.Signer
	a := s.open()
	id := a.append()
	a.covered(2)
	other, err := checkpoint.NewSigner("payments.example/tgad")
	if err != nil {
		t.Fatal(err)
	}
	without := s.options
	without.Signer = other
	if _, err := s.tryOpen(without); !errors.Is(err, tga.PermissionDenied) {
		t.Errorf("a key that nobody handed over to: %v", err)
	}
	next := without
	next.Former = &old
	b, err := s.tryOpen(next)
	if err != nil {
		t.Fatal(err)
	}
	b.append()
	b.covered(4)
	if !b.SignedAt().IsZero() {
		t.Error("two keys sign")
	}
	a.close()
	b.append()
	b.covered(6)
	if b.SignedAt().IsZero() {
		t.Error("the new key does not sign")
	}
	b.proved(id, old.Public)
	if _, over := b.Keys(); len(over) != 1 {
		t.Errorf("%d hand-overs", len(over))
	}
	if _, err := s.tryOpen(s.options); !errors.Is(err, tga.PermissionDenied) {
		t.Errorf("the old key opens the store again: %v", err)
	}
	if faults := s.faults(); len(faults) > 0 {
		t.Errorf("faults: %q", faults)
	}
}

// TestWitnessOfAFleet: a witness remembers what one process has shown it. Another one that takes over, and one that opens
// while the first signs, know less for a moment, and accuse nobody. A database that was put back is accused.
func TestWitnessOfAFleet(t *testing.T) {
	s, save, putBack := inDatabase(t)
	secret, public, err := witness.NewKey("witness.example")
	if err != nil {
		t.Fatal(err)
	}
	key, err := witness.ParseKey(secret, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	state, err := witness.Open(filepath.Join(t.TempDir(), "witness"), true)
	if err != nil {
		t.Fatal(err)
	}
	trust := witness.Trust{}
	if err := trust.Add(s.options.Signer.Name() + " " + s.options.Signer.Public); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(witness.New(key, trust, state, slog.New(slog.DiscardHandler)))
	defer server.Close()
	v, err := fnote.NewVerifierForCosignatureV1(public)
	if err != nil {
		t.Fatal(err)
	}
	open := func() *keeping {
		t.Helper()
		o := s.options
		o.Places, o.Witnesses, o.Cosigned = []checkpoint.Target{&checkpoint.Witness{URL: server.URL, Key: v}}, []note.Verifier{v}, 1
		k, err := s.tryOpen(o)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	cosigned := func(k *keeping, size int64) {
		t.Helper()
		until(t, "the witness has signed", func() bool {
			k.covered(size)
			raw, _ := k.Newest()
			n, err := note.Open(raw, note.VerifierList(v))
			return err == nil && len(n.Sigs) == 1
		})
	}
	a := open()
	a.append()
	cosigned(a, 2)
	a.close()
	save()
	a = open()
	var load sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	load.Go(func() {
		for ctx.Err() == nil {
			a.append()
		}
	})
	var b *keeping
	for range 5 { // each opens while the other one signs
		if b != nil {
			b.close()
		}
		b = open()
	}
	stop()
	load.Wait()
	a.close()
	b.append()
	until(t, "it takes over", func() bool { return !b.SignedAt().IsZero() })
	cosigned(b, b.Signed())
	if sizes := s.oneLine(); len(sizes) < 4 {
		t.Errorf("checkpoints of %v appends", sizes)
	}
	b.close()
	putBack()
	if why := open().served.Stats().Frozen; !strings.Contains(why, "witness witness.example: it has seen") {
		t.Errorf("frozen for %q", why)
	}
}

// losing are tables in which another process is faster, so often.
type losing struct {
	evidence.Tables
	times atomic.Int32
}

func (l *losing) Keep(ctx context.Context, k evidence.Keeping) error {
	if l.times.Add(-1) >= 0 {
		return evidence.ErrNotSigner
	}
	return l.Tables.Keep(ctx, k)
}

// TestSlowSignerOpens: a process that begins to sign while it opens, and loses that to another one, opens all the same. It signs
// when nobody else does.
func TestSlowSignerOpens(t *testing.T) {
	s := newStand(t)
	a := s.open()
	a.append()
	a.covered(2)
	a.close()
	old, err := checkpoint.NewSigner("payments.example/tgad")
	if err != nil {
		t.Fatal(err)
	}
	o := s.options
	o.Signer, o.Former = old, &s.options.Signer // it has something to keep at once
	store := s.openStore()
	served := serving.Served(store)
	l := &losing{Tables: serving.Tables(store)}
	l.times.Store(1)
	k := &keeping{t: t, store: store, served: served}
	if k.Keeper, err = evidence.OpenShared(t.Context(), served, l, o); err != nil {
		t.Fatal(err)
	}
	k.run()
	k.append()
	k.covered(4)
	if l.times.Load() >= 0 || k.SignedAt().IsZero() {
		t.Errorf("it lost %d times less than it should, and signed at %v", l.times.Load()+1, k.SignedAt())
	}
	k.close()
}
