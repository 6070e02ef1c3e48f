package engine

import (
	"encoding/binary"
	"encoding/json"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// Names of `m` keys.
const (
	// A store with a later format is refused, because this program might destroy what it does
	// not understand.
	metaFormat      = "format"      // tga.StoreVersion, 8 bytes
	metaStoreID     = "store_id"    // 16 bytes, equal to the watermark's
	metaSecret      = "secret"      // 32 bytes, see [DB.Secret]
	metaIncarnation = "incarnation" // raised by each open, 8 bytes
	metaPosition    = "position"    // the newest record that the index has; only the indexer writes it
	metaFrozen      = "frozen"      // why a restored store refuses writes, JSON
	metaDoubted     = "doubted"     // why [DB.Freeze] froze the store, JSON
	metaQuarantine  = "quarantine"  // [Quarantine], JSON
	metaToken       = "token"       // drawn by the last open with a witness, 16 bytes
	metaFloor       = "floor"       // oldest group at which the store can be restored, 8 bytes
	metaSealing     = "sealing"     // segment whose traces are still to be removed, 8 bytes
)

var ownFormat = binary.BigEndian.AppendUint64(nil, tga.StoreVersion)

// identify reads the identity of the store, or writes it for a new store, and raises the
// incarnation. With believe it does not ask the witness whether the directory is the newest.
func (o *opening) identify(found found, believe bool) error {
	format, err := o.index.meta(metaFormat)
	if err != nil {
		return err
	}
	if format == nil && found.beginning && o.readOnly {
		return tga.Errorf(tga.NotFound, "open %s: there is no store: one is being made", o.dir)
	}
	if format == nil {
		if err := o.create(); err != nil {
			return err
		}
	} else if n, err := number(metaFormat, format); err != nil {
		return err
	} else if n > tga.StoreVersion {
		return tga.Errorf(tga.FormatTooNew, "open %s: the store has format %d, this program knows %d", o.dir, n, tga.StoreVersion)
	}
	if err := o.readIdentity(found); err != nil {
		return err
	}
	if err := o.readRing(); err != nil {
		return err
	}
	incarnation, err := o.index.metaNumber(metaIncarnation)
	if err != nil {
		return err
	}
	if o.readOnly {
		o.leases.begin(uint32(incarnation))
		return nil
	}
	// Raise it before the first lease, so that no epoch of an earlier process can be current.
	incarnation++
	if err := o.incarnate(incarnation, believe, func(w *writer) {
		if format != nil && string(format) != string(ownFormat) {
			w.set(keyspace.AppendMeta(nil, metaFormat), ownFormat) // a store of an older format gets this program's format
		}
	}); err != nil {
		return err
	}
	o.leases.begin(uint32(incarnation))
	return o.site(o.dir).began()
}

// incarnate makes an incarnation durable, together with what is written at the same time, and has the witness see it.
func (o *opened) incarnate(incarnation uint64, believe bool, with func(*writer)) error {
	if incarnation > 1<<32-1 {
		return tga.Errorf(tga.StoreUnavailable, "%s: no incarnation is left", o.of.dir)
	}
	next, err := o.of.witness().testify(o.index, o.of.storeID, incarnation, believe)
	if err != nil {
		return err
	}
	w := o.commits.newWriter()
	with(w)
	w.set(keyspace.AppendMeta(nil, metaIncarnation), binary.BigEndian.AppendUint64(nil, incarnation))
	w.setToken(next)
	if err := o.commits.apply(w); err != nil {
		return err
	}
	return o.of.witness().attest(o.of.storeID, next)
}

// create writes the identity of a new store.
func (o *opening) create() error {
	if o.order.durable() > 0 || o.readOnly {
		return damaged("open %s: it has appends and no format version: not a store of this program", o.dir)
	}
	var secret [32]byte
	if err := o.opts.random(secret[:]); err != nil {
		return err
	}
	w := o.commits.newWriter()
	w.set(keyspace.AppendMeta(nil, metaFormat), ownFormat)
	w.set(keyspace.AppendMeta(nil, metaStoreID), o.storeID[:])
	w.set(keyspace.AppendMeta(nil, metaSecret), secret[:])
	return o.commits.apply(w)
}

// readIdentity reads the id and the secret of the store, and why it is frozen, if it is.
func (o *opening) readIdentity(found found) error {
	id, err := o.index.meta(metaStoreID)
	if err != nil {
		return err
	}
	secret, err := o.index.meta(metaSecret)
	if err != nil {
		return err
	}
	if len(id) != len(o.storeID) || len(secret) != len(o.secret) {
		return damaged("open %s: store id of %d bytes, secret of %d", o.dir, len(id), len(secret))
	}
	// When a store is reopened they have not changed. Other calls may read them at the same
	// time, so they are not written again.
	if o.storeID != tga.ID(id) || o.secret != [32]byte(secret) {
		o.secret, o.storeID = [32]byte(secret), tga.ID(id)
	}
	if o.mark != nil && o.mark.Mark().StoreID != o.storeID {
		return &otherStore{damaged("open %s: its watermark is of store %s, the store is %s", o.dir, o.mark.Mark().StoreID, o.storeID)}
	}
	if err := o.site(o.dir).pinned(o.storeID); err != nil {
		return err
	}
	if o.readOnly {
		o.health.freeze(found.doubt)
	}
	// Use these reasons only if the log itself gives none: a log that lacks records matters more.
	for _, key := range []string{metaDoubted, metaFrozen} {
		var reason string
		if has, err := o.index.metaJSON(key, &reason); err != nil {
			return err
		} else if f := o.health.frozen.Load(); has && (f == nil || f.Code == tga.PermissionDenied) {
			o.health.frozen.Store(damaged("%s", reason))
			o.health.restored.Store(key == metaFrozen)
		}
	}
	var q Quarantine
	has, err := o.index.metaJSON(metaQuarantine, &q)
	if has {
		o.quarantined.Store(&q)
	}
	return err
}

// otherStore says that the watermark belongs to another store. So it is unknown what was
// acknowledged in this store.
type otherStore struct{ err *tga.Error }

func (e *otherStore) Error() string { return e.err.Error() }

// meta returns the value of a meta key, nil if there is none.
func (r *reading) meta(name string) ([]byte, error) {
	return r.get(keyspace.AppendMeta(nil, name))
}

// metaNumber returns the number under a meta key, 0 if there is none.
func (r *reading) metaNumber(name string) (uint64, error) {
	b, err := r.get(keyspace.AppendMeta(nil, name))
	if err != nil || b == nil {
		return 0, err
	}
	return number(name, b)
}

func number(name string, b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, damaged("meta %s has %d bytes", name, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

func (r *reading) metaJSON(name string, to any) (has bool, err error) {
	b, err := r.meta(name)
	if err != nil || b == nil {
		return false, err
	}
	if err := json.Unmarshal(b, to); err != nil {
		return false, damaged("meta %s: %w", name, err)
	}
	return true, nil
}
