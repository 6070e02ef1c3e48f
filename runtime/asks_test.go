package runtime_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// asked notes the reads of traces and keys, in order, because in a database each is a round trip.
// meanwhile is called once, after the first read of a key's record.
type asked struct {
	runtime.Store
	asks      []string
	meanwhile func()
}

func (s *asked) note(what string) { s.asks = append(s.asks, what) }

func (s *asked) Record(ctx context.Context, key ledger.Key) (*ledger.Record, error) {
	s.note("record")
	record, err := s.Store.Record(ctx, key)
	if do := s.meanwhile; do != nil {
		s.meanwhile = nil
		do()
	}
	return record, err
}

func (s *asked) Acquire(ctx context.Context, id tga.ID) (chain.Lease, error) {
	s.note("acquire")
	return s.Store.Acquire(ctx, id)
}

func (s *asked) Load(ctx context.Context, id tga.ID) (*chain.Trace, error) {
	s.note("load")
	return s.Store.Load(ctx, id)
}

func (s *asked) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	s.note("append")
	return s.Store.Append(ctx, l, b)
}

// since returns what was asked since it was called last.
func (s *asked) since() string {
	was := strings.Join(s.asks, " ")
	s.asks = nil
	return was
}

func TestACallAsksItsStoreForNothingTwice(t *testing.T) {
	b := setup(t, park)
	store := &asked{Store: b.db}
	b.store = store
	b.start()
	store.since()
	want := func(what, asks string) {
		t.Helper()
		if got := store.since(); got != asks {
			t.Errorf("%s asks: %s, want %s", what, got, asks)
		}
	}
	b.mustCall(charge("order-1"))
	want("a call", "record acquire append append")
	b.mustCall(charge("order-1"))
	want("a call that is served", "record acquire record load record load load append load")
	begun := b.begin("order-2", "begin-1")
	want("a begin", "record acquire append record")
	if _, err := b.finish(begun, ok(`"paid"`)); err != nil {
		t.Fatal(err)
	}
	want("a finish", "acquire load append")
}

func TestAReadCallLooksForItsKeyOnce(t *testing.T) {
	b := setup(t, runtime.Policy{Class: tga.ClassRead})
	store := &asked{Store: b.db}
	b.store = store
	b.start()
	store.since()
	b.mustCall(charge(""))
	if got := store.since(); got != "record acquire append append" && got != "acquire record append append" {
		t.Errorf("asks: %s", got)
	}
}

// TestKeyTakenAfterTheLook: a run reads the record of its key once. If another trace uses the key
// before the append, the append notices it. The call is then served, refused or conflicts exactly as
// if it had come later.
func TestKeyTakenAfterTheLook(t *testing.T) {
	other := charge("order-1")
	other.Args = []byte(`{"amount":4}`)
	for _, c := range []struct {
		name      string
		meanwhile func(b *bench)
		want      tga.Code
		sends     int
	}{
		{"the same call, completed", func(b *bench) { b.mustCall(charge("order-1")) }, "", 1},
		{"another call, completed", func(b *bench) { b.mustCall(other) }, tga.IdempotencyKeyConflict, 1},
		{"the same call, in doubt", func(b *bench) {
			b.tool.answer = unknown
			_, err := b.call(charge("order-1"))
			wantCode(b.t, err, tga.EffectInDoubt)
		}, tga.EffectInDoubt, 1},
		{"the same call, with an executor that gives up before it sends", func(b *bench) {
			g := b.begin("order-1", "begin-1")
			if _, err := b.rt.NotSent(context.Background(), g.Result.TraceID, g.Permit, "", 0); err != nil {
				b.t.Error(err)
			}
		}, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := setup(t, park)
			store := &asked{Store: b.db}
			b.store = store
			b.start()
			store.meanwhile = func() { c.meanwhile(b) }
			res, err := b.call(charge("order-1"))
			if tga.CodeOf(err) != c.want {
				t.Errorf("%+v, %v, want code %q", res, err, c.want)
			}
			b.wantSends(c.sends)
		})
	}
}

// TestKeyOfAnotherUserTakenAfterTheLook: the user of the key is compared at the second look, too.
func TestKeyOfAnotherUserTakenAfterTheLook(t *testing.T) {
	b := setup(t, park)
	store := &asked{Store: b.db}
	b.store = store
	b.start()
	begin := func(id, user string) (runtime.Begun, error) {
		return b.rt.Begin(context.Background(), runtime.BeginRequest{
			Request: charge("order-1"), BeginID: id, Connection: runtime.Connection{Subject: user},
		})
	}
	store.meanwhile = func() {
		g, err := begin("begin-1", "ada")
		if err == nil {
			_, err = b.finish(g, ok(`"hers"`))
		}
		if err != nil {
			t.Error(err)
		}
	}
	g, err := begin("begin-2", "bob")
	if err == nil {
		err = g.Cause
	}
	wantCode(t, err, tga.IdempotencyKeyConflict)
	if len(g.Result.Value) != 0 {
		t.Errorf("told %s", g.Result.Value)
	}
}
