package serving_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/engine/postgres/internal/serving"
	serve "github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// stand is a store whose evidence several processes keep. Here each is a store and a keeper of this one.
type stand struct {
	*testing.T
	dsn     string
	shard   int32
	lease   time.Duration
	outside string
	options evidence.Options
}

func newStand(t *testing.T) *stand {
	t.Helper()
	server, err := common.Server()
	if err != nil {
		t.Fatal(err)
	}
	return newStandAt(t, pgserver.DSN(server), shards.Add(1))
}

func newStandAt(t *testing.T, dsn string, shard int32) *stand {
	t.Helper()
	key, err := checkpoint.NewSigner("payments.example/tgad")
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{T: t, dsn: dsn, shard: shard, lease: 5 * time.Second, outside: filepath.Join(t.TempDir(), "checkpoint")}
	s.options = evidence.Options{Signer: key, Every: 10 * time.Millisecond, Places: []checkpoint.Target{checkpoint.Directory{Path: s.outside}}}
	return s
}

// keeping is one process of a stand.
type keeping struct {
	*evidence.Keeper
	t      *testing.T
	store  *postgres.Store
	served serve.Proving
	stop   func() // looks and signs no more, as a process that stands still
	closed bool

	namespace string // of its calls
}

func (s *stand) openStore() *postgres.Store {
	s.Helper()
	store, err := postgres.Open(s.Context(), s.dsn, postgres.Options{Shard: s.shard, Lease: s.lease})
	if err != nil {
		s.Fatal(err)
	}
	return store
}

// open opens another process that has the key.
func (s *stand) open() *keeping {
	s.Helper()
	k, err := s.tryOpen(s.options)
	if err != nil {
		s.Fatal(err)
	}
	return k
}

func (s *stand) tryOpen(o evidence.Options) (*keeping, error) {
	s.Helper()
	return s.keep(s.openStore(), o)
}

// keep has a process keep the evidence of a store that it has open.
func (s *stand) keep(store *postgres.Store, o evidence.Options) (*keeping, error) {
	s.Helper()
	k := &keeping{t: s.T, store: store}
	k.served = serving.Served(k.store)
	var err error
	if k.Keeper, err = k.served.Keep(s.Context(), o); err != nil {
		return nil, errors.Join(err, k.store.Close())
	}
	k.run()
	s.Cleanup(k.close)
	return k, nil
}

// run looks and signs until stop is called.
func (k *keeping) run() {
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.Run(ctx)
	}()
	k.stop = func() {
		end()
		<-ended
	}
}

func (k *keeping) close() {
	if k.closed {
		return
	}
	k.closed = true
	k.stop()
	if err := errors.Join(k.Keeper.Close(), k.store.Close()); err != nil {
		k.t.Error(err)
	}
}

// append appends a call: two appends.
func (k *keeping) append() tga.ID {
	k.t.Helper()
	b := storetest.New(k.t)
	b.Namespace = k.namespace
	lease, err := k.store.Acquire(k.t.Context(), b.TraceID)
	if err == nil {
		_, err = k.store.Append(k.t.Context(), lease, b.Begin(""))
	}
	if err == nil {
		_, err = k.store.Append(k.t.Context(), lease, b.End(tga.StatusSuccess))
	}
	if err != nil {
		k.t.Fatal(err)
	}
	k.store.Release(lease)
	return b.TraceID
}

// covered waits until a process knows of a checkpoint of so many leaves, and returns it.
func (k *keeping) covered(size int64) checkpoint.Checkpoint {
	k.t.Helper()
	var c checkpoint.Checkpoint
	until(k.t, fmt.Sprintf("a checkpoint covers %d appends", size), func() bool {
		if why := k.served.Stats().Frozen; why != "" {
			k.t.Fatal(why)
		}
		raw, _ := k.Newest()
		if raw == nil {
			return false
		}
		var err error
		if c, err = checkpoint.Unverified(raw); err != nil {
			k.t.Fatal(err)
		}
		return c.Size >= size
	})
	return c
}

// proved asks for a receipt that is whole, and verifies it as an auditor does.
func (k *keeping) proved(id tga.ID, key string) {
	k.t.Helper()
	r, err := k.Receipt(k.t.Context(), id)
	if err != nil {
		k.t.Fatal(err)
	}
	got, err := bundle.VerifyReceipt(wire.Append(nil, r.Plain()), bundle.Trust{Key: key})
	if err != nil || got.Verdict() != "proved" {
		k.t.Errorf("receipt of %s: %v, %v", id, got, err)
	}
}

// exported writes an evidence file of everything, and verifies it.
func (k *keeping) exported(key string) []byte {
	k.t.Helper()
	var b bytes.Buffer
	err := k.Export(k.t.Context(), &b, evidence.Wanted{}, func(w io.Writer, ids []tga.ID) error {
		for _, id := range ids {
			if err := ndjson.Write(w, id, k.store.Entries(k.t.Context(), id, 0), k.store.Notes(k.t.Context(), id, 0)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		k.t.Fatal(err)
	}
	r, err := bundle.Verify(bytes.NewReader(b.Bytes()), bundle.Trust{Key: key})
	if err != nil || r.Verdict() != "proved" {
		k.t.Errorf("evidence: %v, %+v", err, r)
	}
	return b.Bytes()
}

// owner is a connection of somebody who may do anything with the database, and whom no trigger stops.
func (s *stand) owner() *pgx.Conn {
	s.Helper()
	c, err := pgx.Connect(s.Context(), s.dsn)
	if err == nil {
		_, err = c.Exec(s.Context(), "SET session_replication_role = replica")
	}
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func (s *stand) exec(statement string, args ...any) {
	s.Helper()
	if _, err := s.owner().Exec(s.Context(), statement, args...); err != nil {
		s.Fatal(err)
	}
}

// oneLine checks the checkpoints in the tables: each is of the order as it is, and none is smaller than the one before.
func (s *stand) oneLine() (sizes []int64) {
	s.Helper()
	c := s.owner()
	rows, err := c.Query(s.Context(), "SELECT note FROM tgad.signed_notes WHERE shard = $1 AND kind = 1 ORDER BY number", s.shard)
	if err != nil {
		s.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		s.Fatal(err)
	}
	store := s.openStore()
	defer store.Close()
	t := tree.NewTiled(nil)
	keys, err := checkpoint.TrustKeys(s.options.Signer.Name(), s.options.Signer.Public)
	if err != nil {
		s.Fatal(err)
	}
	for _, raw := range list {
		c, _, err := keys.Open(raw)
		if err != nil {
			s.Fatal(err)
		}
		if len(sizes) > 0 && c.Size < sizes[len(sizes)-1] {
			s.Errorf("a checkpoint of %d appends stands behind one of %d", c.Size, sizes[len(sizes)-1])
		}
		for t.Size() < c.Size {
			got, err := store.Fleet().Evidence().Leaves(s.Context(), uint64(t.Size()), int(min(c.Size-t.Size(), 1000)))
			if err != nil || len(got) == 0 {
				s.Fatalf("the order has %d appends, and %d were signed: %v", t.Size(), c.Size, err)
			}
			for _, l := range got {
				l := tree.Leaf(l)
				if err := t.Append(&l); err != nil {
					s.Fatal(err)
				}
			}
		}
		if head, err := t.Head(c.Size); err != nil || head != c.Head {
			s.Errorf("the order has head %v at %d, and %v was signed: %v", head, c.Size, c.Head, err)
		}
		sizes = append(sizes, c.Size)
	}
	return sizes
}

// TestEvidenceOfAFleet: one process signs, each answers with the same receipts, evidence and tiles. When it ends, another
// one goes on where it stood.
func TestEvidenceOfAFleet(t *testing.T) {
	s := newStand(t)
	key := s.options.Signer.Public
	a := s.open()
	b := s.open()
	bare := s.options
	bare.Signer, bare.Places = checkpoint.Signer{}, nil
	c, err := s.tryOpen(bare) // has no key
	if err != nil {
		t.Fatal(err)
	}
	ids := []tga.ID{a.append(), b.append(), c.append()}
	for _, k := range []*keeping{a, b, c} {
		k.covered(6)
		for _, id := range ids {
			k.proved(id, key)
		}
		if got, want := k.exported(key), a.exported(key); !bytes.Equal(got, want) {
			t.Errorf("one process exports %s, another one %s", got, want)
		}
		tile := tlog.Tile{H: tree.TileHeight, W: 6}
		for tile.L = range 1 {
			got, err := k.Tile(t.Context(), tile)
			want, werr := a.Tile(t.Context(), tile)
			if err != nil || werr != nil || !bytes.Equal(got, want) {
				t.Errorf("tile: %v, %v", err, werr)
			}
		}
	}
	for n := range int64(4) { // what one process has shown, another one knows that is asked
		a.append()
		shown := a.covered(8 + 2*n)
		if err := b.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		raw, _ := b.Newest()
		if got, err := checkpoint.Unverified(raw); err != nil || got.Size < shown.Size {
			t.Errorf("a process answers with %d appends, and another one has shown %d: %v", got.Size, shown.Size, err)
		}
	}
	if a.SignedAt().IsZero() || !b.SignedAt().IsZero() || !c.SignedAt().IsZero() {
		t.Error("another process signs than the first that had the key")
	}
	a.close()
	outside := func(size int64) func() bool {
		return func() bool {
			raw, err := s.options.Places[0].Newest(t.Context(), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := checkpoint.Unverified(raw)
			return err == nil && got.Size == size
		}
	}
	if !outside(14)() {
		t.Error("the newest checkpoint is not outside")
	}
	if err := os.Remove(s.outside); err != nil { // as if who signed it had been killed before it was handed out
		t.Fatal(err)
	}
	until(t, "who takes over hands out what was kept", outside(14))
	id := c.append()
	b.covered(16)
	c.covered(16)
	c.proved(id, key)
	if b.SignedAt().IsZero() {
		t.Error("nobody took over")
	}
	if sizes := s.oneLine(); sizes[len(sizes)-1] != 16 {
		t.Errorf("checkpoints of %v appends", sizes)
	}
	until(t, "it is outside", outside(16))
}

// TestAppendIsAskedNothingMore: with evidence an append asks the database the same, and writes the same rows, as without. What
// evidence asks comes with time, and not with each append.
func TestAppendIsAskedNothingMore(t *testing.T) {
	const calls = 40
	var seen [2]map[string]int64
	for i := range seen {
		s, _, _ := inDatabase(t)
		s.exec("DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET track_functions = ''pl'''; END $$")
		s.options.Every = 300 * time.Millisecond
		k := &keeping{t: t}
		if i == 1 {
			k = s.open()
		} else {
			k.store = s.openStore()
		}
		for range calls {
			k.append()
		}
		if i == 1 {
			k.covered(1)
			k.close()
		} else if err := k.store.Close(); err != nil {
			t.Fatal(err)
		}
		rows, err := s.owner().Query(t.Context(), `SELECT funcname, calls FROM pg_stat_user_functions WHERE schemaname = 'tgad'
			UNION ALL SELECT relname || ' rows', n_tup_ins + n_tup_upd FROM pg_stat_user_tables WHERE schemaname = 'tgad'`)
		if err != nil {
			t.Fatal(err)
		}
		seen[i] = map[string]int64{}
		for rows.Next() {
			var name string
			var n int64
			if err := rows.Scan(&name, &n); err != nil {
				t.Fatal(err)
			}
			seen[i][name] = n
		}
	}
	for _, what := range []string{"append", "acquire", "look", "vouch", "serves", "notes_rest rows", "ledger rows", "attachments rows", "pending rows"} {
		if seen[0][what] != seen[1][what] {
			t.Errorf("%s: %d without evidence, %d with it", what, seen[0][what], seen[1][what])
		}
	}
	if n := seen[1]["append"]; n != 2*calls {
		t.Errorf("%d appends were counted, want %d: %v", n, 2*calls, seen[1])
	}
	if n := seen[1]["keep"]; n == 0 || n > calls/2 {
		t.Errorf("%d notes were kept for %d appends", n, 2*calls)
	}
}
