package daemon

import (
	"context"
	"errors"
	"iter"
	"path/filepath"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/duty"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/keyring"
	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Store is what a daemon serves. It has the methods that every kind of store has; [powers] has
// those that only some kinds have.
type Store interface {
	runtime.Store

	// Lend is Acquire for a peer, which is no process of this store. own reports, for the trace as it
	// is now, whether its next artifacts are the peer's to append; see engine.DB.Lend.
	Lend(ctx context.Context, trace tga.ID, own func(*chain.Trace) bool) (chain.Lease, error)
	// Submit starts an append, or refuses it at once. Wait of what it returns waits until the
	// append is durable.
	Submit(ctx context.Context, lease chain.Lease, b chain.Batch) (Submitted, error)
	// LatestCheckpoint returns the newest checkpoint of a trace that verifies.
	LatestCheckpoint(ctx context.Context, trace tga.ID) (cp tga.Checkpoint, ok bool, err error)
	// Traces yields every trace after an id, in the order of ids, finished ones too.
	Traces(ctx context.Context, after tga.ID) iter.Seq2[chain.Listed, error]
	// Cursor is the newest number of the durable order, and Follow yields what comes after one.
	Cursor() uint64
	Follow(ctx context.Context, after uint64) iter.Seq2[chain.Leaf, error]
	// Check reads the whole store, and reports where it disagrees with itself.
	Check(ctx context.Context) (engine.Report, error)
	// Stats does no I/O: it is called once a second and for every request to /readyz. A value
	// that the store does not have is zero.
	Stats() engine.Stats
	Close() error
}

// Submitted is an append that may not be durable yet.
type Submitted interface {
	Wait() (chain.Appended, error)
}

// powers are what a store can do beyond [Store]; nil means that it cannot. No other code asks what
// kind of store there is. [Daemon.lacks] refuses the routes that need something that is nil.
type powers struct {
	archive archive
	erases  erasing
	frozen  thawing
	proofs  evidence.Store
	proving Proving // nil unless the store keeps its evidence itself
	shared  Shared
	duty    func(name string) duty.Duty
	listing Listing // nil unless the store keeps its index of lists itself
}

// archive is a store whose files are on this machine.
type archive interface {
	Backup(ctx context.Context, dir string) error
	SealTraces(ctx context.Context, before tga.Millis) (engine.Sealed, error)
	FinishErasure(ctx context.Context) error
	Erasing() (bool, error)
	Working() []engine.Work
	erasing
}

// erasing is a store that destroys what finished traces carry.
type erasing interface {
	Erase(ctx context.Context, what engine.Erasure) (engine.Erased, error)
}

// thawing is a store that an operator can put back into service after it lost appends.
type thawing interface {
	Unfreeze(ctx context.Context, acceptLoss bool, who string) error
	EndQuarantine(ctx context.Context, who string) error
}

// Shared is a store that several processes have open at once.
type Shared interface {
	// Ready asks whether the store takes appends of this process now.
	Ready(ctx context.Context) error
	// Missing says which stores this process serves but has not open, because they were away when it began. nil: none.
	Missing() error
	// Alone reports whether no other process had the store when this one opened it.
	Alone() bool
	// Left lists the open traces whose lease a process still held when it ended.
	Left(ctx context.Context) ([]tga.ID, error)
	// IsLeft says whether Left would still list one trace: another process may have recovered it since.
	IsLeft(ctx context.Context, trace tga.ID) (bool, error)
}

// Proving is a store that several processes have open at once, and that keeps the evidence itself.
type Proving interface {
	evidence.Store
	thawing
	// Keep opens the keeper of the evidence. Without a key it serves what other processes signed.
	Keep(ctx context.Context, o evidence.Options) (*evidence.Keeper, error)
}

// Dividing is a store whose processes divide duties among them: one process at a time has each duty.
type Dividing interface {
	Duty(name string) duty.Duty
	// End is the newest number of the order as the store has it now; Cursor may be behind it.
	End(ctx context.Context) (uint64, error)
	// Added returns what the next appends after a cursor added, some at a time. It returns none if
	// there are no more.
	Added(ctx context.Context, after uint64) ([]Added, error)
}

// Added is what one append added to its trace.
type Added struct {
	Leaf    chain.Leaf
	Entries []chain.Entry
	Notes   []tga.Note
}

// Listing is a store that keeps the index of lists itself.
type Listing interface {
	// Lists returns the index. Its Run keeps it, as far as this process does.
	Lists() search.Lists
	// Read reads traces as they are in the database now, and calls each with those that can be read.
	Read(ctx context.Context, ids []tga.ID, each func(*chain.Trace)) error
	// RemoveLists removes the index if no other process keeps it. It is for a process whose
	// configuration does not ask for one.
	RemoveLists(ctx context.Context) error
}

// powersOf finds out what a store can do. data is its directory, "" if it has none.
func powersOf(s Store, data string) (p powers) {
	if dir, ok := s.(directory); ok {
		p.archive, p.frozen, p.proofs = dir, dir, dir.DB
		p.duty = func(name string) duty.Duty { return duty.File(filepath.Join(data, name)) }
	}
	if x, ok := s.(Dividing); ok {
		p.duty = x.Duty
	}
	if x, ok := s.(Proving); ok {
		p.frozen, p.proofs, p.proving = x, x, x
	}
	p.erases, _ = s.(erasing)
	p.shared, _ = s.(Shared)
	p.listing, _ = s.(Listing)
	return p
}

// lacks refuses a route that needs something that the store cannot do. The code is NOT_FOUND, because
// no other request of the peer would succeed either.
func (d *Daemon) lacks(path string) error {
	var why string
	switch path {
	case "/v1/erase":
		if d.can.erases == nil {
			why = "a daemon of all stores of a fleet cannot erase: ask a daemon of one store ([store] namespace)"
		}
	case "/v1/backup", "/v1/seal", "/v1/retention":
		if d.can.archive == nil {
			why = "a store in a database has no files of its own: back the database up, and keep its partitions"
		}
	case "/v1/unfreeze", "/v1/end-quarantine":
		if d.can.frozen == nil {
			why = "a daemon of all stores of a fleet cannot do this: ask a daemon of the store that is frozen ([store] namespace)"
		}
	case "/v1/traces/{id}/receipt", "/v1/checkpoint", "/checkpoint", "/tile/{level}/{number...}", "/v1/bundle":
		if d.can.proofs == nil {
			why = "a daemon of all stores of a fleet has no proofs: ask a daemon of one store ([store] namespace)"
		}
	}
	if why == "" {
		return nil
	}
	return tga.Errorf(tga.NotFound, "%s: %s", path, why)
}

// openStore opens what the daemon is to serve.
func openStore(ctx context.Context, o Options) (Store, error) {
	if o.Open != nil {
		return o.Open(ctx, o)
	}
	store := assemble.StoreOptions(o.Config)
	store.Clock, store.Logger, store.Create = o.Clock, o.Logger, o.Create
	store.Synced = o.synced
	if o.Tune != nil {
		o.Tune(&store)
	}
	ring, err := assemble.Keyring(o.Config, o.Data)
	if err != nil {
		return nil, err
	}
	if ring != nil {
		store.Keyring = ring
	}
	how := engine.Open
	if o.readOnly {
		how = engine.OpenReadOnly
	}
	db, err := how(o.Data, store)
	if err != nil {
		return nil, errors.Join(err, closeRing(ring))
	}
	return directory{db, ring}, nil
}

// directory is a store in a directory, which one process has open, with its key ring (nil: none).
type directory struct {
	*engine.DB
	ring *keyring.Ring
}

// Close closes the store, and then its key ring.
func (d directory) Close() error { return errors.Join(d.DB.Close(), closeRing(d.ring)) }

func closeRing(r *keyring.Ring) error {
	if r == nil {
		return nil
	}
	return r.Close()
}

// Submit implements [Store].
func (d directory) Submit(ctx context.Context, lease chain.Lease, b chain.Batch) (Submitted, error) {
	return d.DB.Submit(ctx, lease, b)
}

// readyPatience is how long /readyz waits for the database to answer.
const readyPatience = 2 * time.Second
