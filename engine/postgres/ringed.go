package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// ringed is what the store knows about its key ring. All processes of a store must have the same ring. The database
// stores the id of the ring and a mark of each used key, so that no process can work with a different copy of the ring.
type ringed struct {
	s     *Store
	ring  chain.Keyring         // nil: no ring was given
	under sealrules.SealedUnder // zero: the store is not sealed
	lacks int                   // number of keys that the store has used and the ring, an older copy, lacks

	mu     sync.Mutex
	known  map[chain.KeyID]chain.KeyID // by block of numbers: the last key of the block that the database has
	owners *lru[string, chain.KeyID]
}

// keyTries is how often another key is tried because an erasure has retired or destroyed the key.
const keyTries = 20

// keyBlock is how many key numbers are stored in the database at once.
const keyBlock = 256

// Codes that the functions of migrations/009_sealing.sql return.
const (
	sqlKeyRetired = "TG114"
	sqlOtherRing  = "TG115"
	sqlErasingOn  = "TG116"
)

// ringName is the name of the row that says under which ring the store is sealed.
const ringName = "keyring"

func (r *ringed) keys() chain.Keys {
	if r.ring == nil {
		return nil
	}
	return r.ring
}

// readRing finds out under which ring the store is sealed. If the store gets a ring for the first time, the database stores that.
// Without its ring only the parts of a store that are not sealed can be read, and nothing can be appended.
func (r *ringed) readRing(ctx context.Context, c *pgxpool.Conn) error {
	s := r.s
	r.ring, r.known = s.o.Keyring, map[chain.KeyID]chain.KeyID{}
	var id, value []byte
	var busy bool
	if r.ring != nil {
		ring := r.ring.ID()
		id = ring[:]
	}
	if err := c.QueryRow(ctx, "SELECT o_under, o_busy FROM tgad.seal_store($1, $2)", s.o.Shard, id).Scan(&value, &busy); err != nil {
		return err
	}
	if busy {
		return tga.Errorf(tga.StateLockAcquireFailed, "open: the store is not sealed, and other processes have it open: stop them all, and start this one, with [keyring], before them")
	}
	if value == nil {
		return nil
	}
	var ok bool
	if r.under, ok = sealrules.ReadSealedUnder(value); !ok {
		return damaged("meta %s has %d bytes", ringName, len(value))
	}
	return r.under.Fits(r.ring, "the store in the database")
}

// sameRing refuses a session if the database names another ring than this process knows, for example because the store was sealed
// after this process opened it. Such a process would write values in the clear.
func (r *ringed) sameRing(ctx context.Context, c *pgxpool.Conn) error {
	s := r.s
	var value []byte
	if err := c.QueryRow(ctx, "SELECT (SELECT value FROM tgad.meta WHERE shard = $1 AND name = $2)", s.o.Shard, ringName).Scan(&value); err != nil {
		return err
	}
	under, ok := sealrules.ReadSealedUnder(value)
	switch {
	case value != nil && !ok:
		return damaged("meta %s has %d bytes", ringName, len(value))
	case under != r.under:
		return tga.Errorf(tga.StoreUnavailable, "the store was sealed under key ring %s since this process opened it: start the process anew, with that ring", under.Ring)
	}
	return nil
}

// sameKeys refuses a ring whose keys differ from those of the store. It also refuses an older copy of the ring while other processes
// have the store open, because they have a newer copy. If no other process has it open, an older copy skips the used numbers.
func (r *ringed) sameKeys(ctx context.Context, c *pgxpool.Conn) error {
	s := r.s
	if r.ring == nil || r.under.Ring.IsZero() {
		return nil
	}
	var used int64
	var others bool
	var keys []int64
	var marks [][]byte
	if err := c.QueryRow(ctx, `SELECT coalesce((SELECT max(key) FROM tgad.data_keys WHERE shard = $1), 0),
		EXISTS (SELECT 1 FROM tgad.sessions WHERE shard = $1 AND session <> $2 AND NOT ended AND expires > clock_timestamp()),
		ARRAY(SELECT key FROM tgad.data_keys WHERE shard = $1 AND key > (SELECT max(key) FROM tgad.data_keys WHERE shard = $1) - $3 ORDER BY key),
		ARRAY(SELECT mark FROM tgad.data_keys WHERE shard = $1 AND key > (SELECT max(key) FROM tgad.data_keys WHERE shard = $1) - $3 ORDER BY key)`,
		s.o.Shard, s.session.number(), keyBlock).Scan(&used, &others, &keys, &marks); err != nil {
		return err
	}
	if ring, ok := r.ring.(sealrules.Marking); ok && used > 0 {
		own, ours, err := ring.Marks(chain.KeyID(max(0, used-keyBlock)), keyBlock)
		if err != nil {
			return err
		}
		for i, n := range own {
			if at, ok := slices.BinarySearch(keys, int64(n)); ok && !bytes.Equal(marks[at], ours[i]) {
				return anotherCopy(r.under.Ring, n)
			}
		}
	}
	ring, ok := r.ring.(sealrules.Numbered)
	if !ok {
		return nil
	}
	if r.lacks = sealrules.Lacks(ring, chain.KeyID(used)); r.lacks == 0 {
		return nil
	}
	if others && ring.Last() < chain.KeyID(used) {
		return tga.Errorf(tga.StoreUnavailable, "open: key ring %s is a copy that lacks %d keys of the store, and other processes have the store open with a newer one: all of them need the same file", r.under.Ring, r.lacks)
	}
	s.log.Warn("the key ring is an older copy: calls whose keys it does not have cannot be read until a newer copy is put back", "ring", r.under.Ring, "missing_keys", r.lacks, "store_used", used)
	return ring.Reserve(chain.KeyID(used))
}

func anotherCopy(ring tga.ID, key chain.KeyID) error {
	return tga.Errorf(tga.StoreUnavailable, "key ring %s is another copy than the store was sealed with: it has another key %d. All processes of the store need the same file", ring, key)
}

// newKey returns a key that may seal new values. The database has a mark of it.
func (r *ringed) newKey(ctx context.Context, namespace, subject string) (chain.KeyID, error) {
	for try := 0; ; try++ {
		key, err := sealrules.NewKey(r.ring, namespace, subject)
		if err == nil {
			err = r.remember(ctx, key)
		}
		switch {
		case errors.Is(err, errNoMark) && try < keyTries: // an erasure has just destroyed it
		case err != nil:
			return 0, err // without a mark in the database the key must not seal anything
		default:
			return key, nil
		}
	}
}

// remember stores the mark of a key, and the marks of its block, in the database before the key seals anything.
func (r *ringed) remember(ctx context.Context, key chain.KeyID) error {
	s := r.s
	r.mu.Lock()
	defer r.mu.Unlock()
	block := (key - 1) / keyBlock
	if key <= r.known[block] {
		return nil
	}
	keys, marks, err := marksOf(r.ring, block, []chain.KeyID{key})
	if err != nil {
		return err
	}
	if !slices.Contains(keys, key) {
		return tga.Errorf(tga.StoreUnavailable, "key ring %s: key %d: %w", r.under.Ring, key, errNoMark)
	}
	var used int64
	err = s.ask(ctx, "remember data keys", func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, "SELECT tgad.know_keys($1, $2, $3)", s.o.Shard, numbersOf(keys), marks).Scan(&used)
	})
	if raised(err, sqlOtherRing) {
		return anotherCopy(r.under.Ring, key)
	}
	if ring, ok := r.ring.(sealrules.Numbered); err == nil && ok && ring.Last() < chain.KeyID(used) {
		err = tga.Errorf(tga.StoreUnavailable, "key ring %s ends with key %d, and another process has used key %d: all processes of the store need the same file", r.under.Ring, ring.Last(), used)
	}
	if err == nil {
		r.known[block] = keys[len(keys)-1]
		if len(keys) == 1 && r.known[block] == key {
			delete(r.known, block) // a ring without marks stores each key by itself
		}
	}
	return err
}

// errNoMark says that nothing can be sealed under a key, so that the database need not know it.
var errNoMark = errors.New("it is destroyed, or cannot be read")

// rememberAll is remember for several keys. It skips keys that were destroyed meanwhile.
func (r *ringed) rememberAll(ctx context.Context, keys []chain.KeyID) error {
	for _, key := range keys {
		if err := r.remember(ctx, key); err != nil && !errors.Is(err, errNoMark) {
			return err
		}
	}
	return nil
}

// marksOf returns the keys of a block with their marks. For a ring without marks it returns the keys used.
func marksOf(ring chain.Keyring, block chain.KeyID, used []chain.KeyID) (keys []chain.KeyID, marks [][]byte, err error) {
	if ring, ok := ring.(sealrules.Marking); ok {
		return ring.Marks(block*keyBlock, keyBlock)
	}
	for range used {
		marks = append(marks, []byte{})
	}
	return used, marks, nil
}

// raised reports whether a function of the database ended a transaction with a code of its own.
func raised(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == code
}

// keyFor returns the key that what is appended to a trace is sealed under, 0 where nothing is. One that is new is kept for the
// next try of the append.
func (r *ringed) keyFor(ctx context.Context, p *part) (chain.KeyID, error) {
	if r.ring == nil {
		return 0, nil
	}
	key, fresh, request, err := sealrules.KeyFor(p.before.trace, &p.batch)
	if !fresh || err != nil {
		return key, err
	}
	if p.chosen == 0 {
		namespace, subject := sealrules.SubjectOf(request)
		if p.chosen, err = r.newKey(ctx, namespace, subject); err != nil {
			return 0, err
		}
	}
	p.under = append(p.under, int64(p.chosen))
	return p.chosen, nil
}

// retire has no process seal anything new under keys.
func (r *ringed) retire(ctx context.Context, keys []chain.KeyID) error {
	return r.s.ask(ctx, "retire data keys", func(ctx context.Context, c *pgxpool.Conn) error {
		_, err := c.Exec(ctx, "SELECT tgad.must_be_here($1), tgad.retire_keys($1, $2)", r.s.o.Shard, numbersOf(keys))
		return err
	})
}

// ownerKey returns the key that new values of an owner are sealed under. All processes get the same.
func (r *ringed) ownerKey(ctx context.Context, o sealrules.Owner) (chain.KeyID, error) {
	s := r.s
	name := o.Name()
	if key, ok := r.owners.get(name); ok {
		return key, nil
	}
	own := func(key chain.KeyID) (has int64, err error) {
		err = s.ask(ctx, "ask for the key of an owner", func(ctx context.Context, c *pgxpool.Conn) error {
			return c.QueryRow(ctx, "SELECT tgad.own_key($1, $2, $3)", s.o.Shard, []byte(name), int64(key)).Scan(&has)
		})
		return has, err
	}
	has, err := own(0)
	if err == nil && has != 0 {
		// The key may be destroyed although the database says that it is good: the database may have been
		// restored to a time before an erasure.
		if _, serr := r.ring.Seal(nil, chain.KeyID(has), nil, o.ID); errors.Is(serr, chain.ErrKeyDestroyed) {
			if err = r.retire(ctx, []chain.KeyID{chain.KeyID(has)}); err == nil {
				has, err = own(0)
			}
		}
	}
	if err == nil && has == 0 {
		var key chain.KeyID
		if key, err = r.newKey(ctx, tga.DefaultNamespace, ""); err == nil {
			has, err = own(key)
		}
	}
	if err != nil {
		return 0, err
	}
	r.owners.put(name, chain.KeyID(has), nil)
	return chain.KeyID(has), nil
}

// beside returns the attachments of an append with their values as they are stored: the values of the trace sealed under its key,
// and other values under the key of their owner.
func (r *ringed) beside(ctx context.Context, p *part, key chain.KeyID) ([]chain.Attachment, error) {
	ring, out := r.ring != nil, slices.Clone(p.batch.Attachments)
	for i := range out {
		a := &out[i]
		if a.Value == nil || !ring && !sealrules.Marked(a.Value) {
			continue
		}
		under := chain.KeyID(0)
		if sealrules.OfTrace(p.lease.TraceID, a) {
			under = key
		} else if o := sealrules.OwnerOf(a); ring && o.ID != nil {
			var err error
			if under, err = r.ownerKey(ctx, o); err != nil {
				return nil, err
			}
			p.under = append(p.under, int64(under))
		}
		at, err := keyspace.AppendAttachment(nil, keyspace.Kind(a.Kind), a.Key)
		if err != nil {
			return nil, err
		}
		if a.Value, err = sealrules.Store(at, a.Value, under, r.keys()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// keysChanged forgets the keys that were chosen for new values, because one of them is retired or destroyed.
func (r *ringed) keysChanged(ps parts) {
	for _, p := range ps {
		p.chosen = 0
	}
	r.owners.clear()
}

// opened opens the value of an attachment. there is false if the attachment has no value, or if its key was destroyed.
func (r *ringed) opened(a *chain.Attachment) (there bool, err error) {
	if a.Value == nil {
		return false, nil
	}
	value, err := sealrules.Open(append([]byte{byte(a.Kind)}, a.Key...), a.Value, r.keys())
	if errors.Is(err, chain.ErrKeyDestroyed) {
		value, err = sealrules.Unread(a.Kind), nil
	}
	a.Value = value
	return value != nil, err
}

// RequestDigest returns the digest of a request that the ledger stores. If the store had a key ring before its first ledger
// record, the digest is keyed by a secret of the ring.
func (s *Store) RequestDigest(p tga.Proposal) tga.Digest {
	return s.ringed.under.Digest(s.ringed.ring, p)
}

// UnderRing returns the id of the key ring under which the store is sealed, zero if there is none. It also returns how many
// keys that the store has used are missing from the ring of this process.
func (f Fleet) UnderRing() (ring tga.ID, lacks int) { return f.s.ringed.under.Ring, f.s.ringed.lacks }
