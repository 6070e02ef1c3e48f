package serving_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/engine/postgres/internal/serving"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

// grow has the order grow by appends beside the traces, as somebody who writes rows.
func (s *stand) grow(n int) {
	s.Helper()
	s.exec(fmt.Sprintf(`WITH o AS (UPDATE tgad.order_state SET last = last + %d WHERE shard = %d RETURNING last - %d AS before, committed, newest)
		INSERT INTO tgad.leaves SELECT %d, before + g, gen_random_uuid(), 0, 0, 0, 0, sha256(g::text::bytea), decode(repeat('00', 32), 'hex'), committed, newest FROM o, generate_series(1, %d) AS g`,
		n, s.shard, n, s.shard, n))
}

// faults is what tgad verify says of the store.
func (s *stand) faults() (list []string) {
	s.Helper()
	store := s.openStore()
	defer store.Close()
	r, err := serving.Check(s.Context(), store)
	if err != nil {
		s.Fatal(err)
	}
	for _, p := range r.Problems {
		list = append(list, p.Err.Error())
	}
	return list
}

// frozen opens a process, and returns why the store is frozen.
func (s *stand) frozen() string {
	s.Helper()
	k, err := s.tryOpen(s.options)
	if err != nil {
		s.Fatal(err)
	}
	why := k.served.Stats().Frozen
	k.close()
	return why
}

// TestTilesOfALargeTree: tiles of two levels are kept as the order grows, a process that opens begins with them, and one that
// somebody took away follows from the order again.
func TestTilesOfALargeTree(t *testing.T) {
	s := newStand(t)
	a := s.open()
	id := a.append()
	s.grow(66_000) // more than 256 tiles
	c := a.covered(66_002)
	a.proved(id, s.options.Signer.Public)
	if n, err := a.store.Fleet().Evidence().Whole(t.Context()); err != nil || n[0] != 257 || n[1] != 1 || n[2] != 0 {
		t.Errorf("%v tiles are kept, %v", n, err)
	}
	a.close()
	for _, taken := range []string{"", "level = 0 AND number = 200", "level = 1"} {
		if taken != "" && taken != "level = 1" && !serial.Whole() {
			continue
		}
		if taken != "" {
			s.exec("DELETE FROM tgad.tiles WHERE shard = $1 AND "+taken, s.shard)
		}
		b := s.open()
		if why := b.served.Stats().Frozen; why != "" {
			t.Fatal(why)
		}
		b.proved(id, s.options.Signer.Public)
		if got := b.covered(c.Size); got != c {
			t.Errorf("%v, and %v was signed", got, c)
		}
		s.grow(1)
		c = b.covered(c.Size + 1)
		if n, err := b.store.Fleet().Evidence().Whole(t.Context()); err != nil || n[0] != 257 || n[1] != 1 {
			t.Errorf("without the tiles of %q: %v are kept, %v", taken, n, err)
		}
		b.close()
	}
	if faults := s.faults(); len(faults) > 0 {
		t.Errorf("faults: %q", faults)
	}
}

// TestChangedRowsAreFound: somebody who may do anything with the database changes rows. tgad verify finds it, or the next
// process that opens the store does.
func TestChangedRowsAreFound(t *testing.T) {
	const leaf = "UPDATE tgad.leaves SET digest = sha256('x') WHERE shard = $1 AND index = "
	for _, c := range []struct {
		name, change string
		verify, open string // what is said of it; "" for nothing
	}{
		{"nothing", "SELECT $1::int", "", ""},
		{"a tile", "UPDATE tgad.tiles SET hashes = set_byte(hashes, 77, 255 - get_byte(hashes, 77)) WHERE shard = $1", "tile 0 of level 0 in tgad.tiles has other hashes", "rows of tgad.tiles were changed"},
		{"a tile is gone", "DELETE FROM tgad.tiles WHERE shard = $1", "tile 0 of level 0 is not in tgad.tiles any more", ""},
		{"a checkpoint", "UPDATE tgad.signed_notes SET note = convert_to(replace(convert_from(note, 'UTF8'), E'\\n3', E'\\n2'), 'UTF8') WHERE shard = $1", "no trusted key signed it", "PERMISSION_DENIED"},
		{"a checkpoint is gone", "DELETE FROM tgad.signed_notes WHERE shard = $1 AND number = 1", "note 2 in tgad.signed_notes follows 0", ""},
		{"an early leaf", leaf + "5", "what happened was rewritten", ""},
		{"a leaf in no tile", leaf + "301", "what happened was rewritten", "what happened was rewritten"},
		{"a leaf is gone", "DELETE FROM tgad.leaves WHERE shard = $1 AND index = 304", "the store was rolled back", "the store was rolled back"},
		{"an entry", "UPDATE tgad.entries SET header = set_byte(header, 90, 255 - get_byte(header, 90)) WHERE shard = $1 AND seq = 1", "entry_digest is", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t)
			a := s.open()
			a.append()
			a.covered(2)
			s.grow(298)
			a.covered(300)
			a.append()
			a.append()
			a.covered(304)
			a.close()
			s.options.Places = nil // what the database has is enough
			s.exec(c.change, s.shard)
			faults := strings.Join(s.faults(), "\n")
			if c.verify == "" && faults != "" || !strings.Contains(faults, c.verify) {
				t.Errorf("verify says %q, want %q", faults, c.verify)
			}
			k, err := s.tryOpen(s.options)
			why := fmt.Sprint(err)
			if err == nil {
				why = k.served.Stats().Frozen
				k.close()
			}
			if c.open == "" && why != "" || !strings.Contains(why, c.open) {
				t.Errorf("the store is frozen for %q, want %q", why, c.open)
			}
		})
	}
}

// TestRewrittenStoreIsFrozen: somebody takes a trace out of the database, with its leaves and with all evidence. The
// checkpoint outside is not theirs.
func TestRewrittenStoreIsFrozen(t *testing.T) {
	s := newStand(t)
	a := s.open()
	first := a.append()
	a.append()
	a.append()
	a.covered(6)
	a.close()
	for _, table := range []string{"entries", "notes", "heads", "leaves"} {
		s.exec("DELETE FROM tgad."+table+" WHERE shard = $1 AND trace = $2", s.shard, [16]byte(first))
	}
	s.exec("DELETE FROM tgad.ledger WHERE shard = $1", s.shard)
	s.exec("UPDATE tgad.leaves SET index = index - 2 WHERE shard = $1", s.shard)
	s.exec("UPDATE tgad.order_state SET last = last - 2 WHERE shard = $1", s.shard)
	for _, table := range []string{"tiles", "signed_notes", "duties"} {
		s.exec("DELETE FROM tgad."+table+" WHERE shard = $1", s.shard)
	}
	s.exec("DELETE FROM tgad.meta WHERE shard = $1 AND name = 'evidence key'", s.shard)
	why := s.frozen()
	for _, want := range []string{"file " + s.outside, "it has 4 appends, and 6 were signed"} {
		if !strings.Contains(why, want) {
			t.Errorf("frozen for %q, want %q", why, want)
		}
	}
}

// inDatabase makes a database of its own on the common server, which can be put back to an earlier time.
func inDatabase(t *testing.T) (s *stand, save, putBack func()) {
	t.Helper()
	server, err := common.Server()
	if err != nil {
		t.Fatal(err)
	}
	admin := pgserver.DSN(server)
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("evidence_%d", shards.Add(1))
	u.Path = "/" + name
	run := func(statements ...string) {
		t.Helper()
		c, err := pgx.Connect(t.Context(), admin)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		for _, x := range statements {
			if _, err := c.Exec(t.Context(), x); err != nil {
				t.Fatalf("%s: %v", x, err)
			}
		}
	}
	run("CREATE DATABASE " + name)
	if err := postgres.Migrate(t.Context(), u.String()); err != nil {
		t.Fatal(err)
	}
	return newStandAt(t, u.String(), 0),
		func() { t.Helper(); run("CREATE DATABASE " + name + "_old TEMPLATE " + name) },
		func() {
			t.Helper()
			run("DROP DATABASE "+name+" WITH (FORCE)", "ALTER DATABASE "+name+"_old RENAME TO "+name)
		}
}

// TestDatabasePutBackIsFrozen: an older dump of the database is restored beside a checkpoint that is outside. The first
// process that has the key freezes the store for all, with both named; a person accepts it, and all go on.
func TestDatabasePutBackIsFrozen(t *testing.T) {
	s, save, putBack := inDatabase(t)
	s.lease = time.Second
	a := s.open()
	a.append()
	a.covered(2)
	a.close()
	save()
	a = s.open()
	a.append()
	a.append()
	a.covered(6)
	a.close()
	putBack()

	bare := s.options
	bare.Signer, bare.Places = checkpoint.Signer{}, nil
	c, err := s.tryOpen(bare) // knows of no checkpoint outside
	if err != nil {
		t.Fatal(err)
	}
	c.append() // as if nothing had happened
	b := s.open()
	for _, want := range []string{"file " + s.outside, ", and 6 were signed"} {
		if why := b.served.Stats().Frozen; !strings.Contains(why, want) {
			t.Errorf("frozen for %q, want %q", why, want)
		}
	}
	until(t, "the other process hears of it", func() bool { return c.served.Stats().Frozen != "" })
	d, err := s.tryOpen(bare)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []*keeping{b, c, d} {
		if _, err := k.store.Acquire(t.Context(), tga.ID{1}); !errors.Is(err, tga.StoreUnavailable) {
			t.Errorf("a lease of a frozen store: %v", err)
		}
	}
	if err := c.Accept("somebody"); !errors.Is(err, tga.ValidationError) {
		t.Errorf("accepted without a key: %v", err)
	}
	if err := b.served.Unfreeze(t.Context(), false, "somebody"); !errors.Is(err, tga.ValidationError) {
		t.Errorf("unfrozen without a word: %v", err)
	}
	if err := errors.Join(b.Accept("somebody"), b.served.Unfreeze(t.Context(), true, "somebody")); err != nil {
		t.Fatal(err)
	}
	until(t, "all go on", func() bool { return c.served.Stats().Frozen == "" && d.served.Stats().Frozen == "" })
	for _, k := range []*keeping{b, c, d} {
		if q := k.served.Stats().Quarantine; q == nil || q.Who != "somebody" {
			t.Errorf("in quarantine: %v", q)
		}
	}
	id := c.append()
	b.covered(6)
	d.covered(6)
	d.proved(id, s.options.Signer.Public)
	if err := b.served.EndQuarantine(t.Context(), "somebody"); err != nil {
		t.Error(err)
	}
	until(t, "the quarantine is over", func() bool { return d.served.Stats().Quarantine == nil })
	b.close()
	if why := s.frozen(); why != "" {
		t.Errorf("frozen again for what was accepted: %s", why)
	}
	if faults := s.faults(); len(faults) > 0 {
		t.Errorf("faults: %q", faults)
	}
}

// TestDatabaseIsPutBackUnderASigner: the process that signs stays, and the database is put back below it. It remembers what
// it has signed.
func TestDatabaseIsPutBackUnderASigner(t *testing.T) {
	s, save, putBack := inDatabase(t)
	s.options.Places = nil
	a := s.open()
	a.append()
	a.covered(2)
	a.close()
	save()
	a = s.open()
	a.append()
	a.covered(4)
	putBack()
	until(t, "the store is frozen", func() bool {
		return strings.Contains(a.served.Stats().Frozen, "the newest checkpoint that this process has seen: it has 2 appends, and 4 were signed")
	})
}

// TestForgedCheckpointFreezesTheStore: somebody who has the key writes a checkpoint of another tree into the tables. Each process
// finds it, the one that signs too.
func TestForgedCheckpointFreezesTheStore(t *testing.T) {
	s := newStand(t)
	a, b := s.open(), s.open()
	a.append()
	c := a.covered(2)
	b.covered(2)
	c.Head[0] ^= 1
	raw, err := c.Sign(s.options.Signer)
	if err != nil {
		t.Fatal(err)
	}
	s.exec("INSERT INTO tgad.signed_notes SELECT shard, max(number) + 1, 1, 2, 1, $2 FROM tgad.signed_notes WHERE shard = $1 GROUP BY shard", s.shard, raw)
	for _, k := range []*keeping{a, b} {
		until(t, "the store is frozen", func() bool { return k.served.Stats().Frozen != "" })
		if why := k.served.Stats().Frozen; !strings.Contains(why, "its first 2 appends have head") {
			t.Errorf("frozen for %q", why)
		}
		if raw, _ := k.Newest(); len(raw) == 0 || strings.Contains(string(raw), c.Head.String()) {
			t.Errorf("it answers with %s", raw)
		}
	}
	if faults := strings.Join(s.faults(), "\n"); !strings.Contains(faults, "what happened was rewritten") {
		t.Errorf("verify says %q", faults)
	}
}
