package engine

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
	"github.com/tgad/tgad/wal/chain"
)

// Dump returns every key and value of the store.
func (db *DB) Dump() map[string]string {
	out := map[string]string{}
	if err := db.index.scan([]byte{0}, nil, func(key, value []byte) error {
		if string(key) != string(keyspace.AppendMeta(nil, metaPosition)) { // it is no value of the log's
			out[string(key)] = string(value)
		}
		return nil
	}); err != nil {
		panic(err)
	}
	return out
}

// Rows returns every row of the index but its position.
func (db *DB) Rows() map[string]string {
	out := map[string]string{}
	if err := db.index.scanRows([]byte{0}, nil, func(key, row []byte) error {
		if string(key) != string(keyspace.AppendMeta(nil, metaPosition)) {
			out[string(key)] = string(row)
		}
		return nil
	}); err != nil {
		panic(err)
	}
	return out
}

// Put sets a value behind the log's back; nil removes it.
func (db *DB) Put(key, value []byte) {
	if value != nil {
		value = append([]byte{rowValue}, value...)
	}
	db.PutRow(key, value)
}

// PutRow sets a row behind the log's back; nil removes it.
func (db *DB) PutRow(key, row []byte) {
	var err error
	if row == nil {
		err = db.index.p.Delete(key, pebble.NoSync)
	} else {
		err = db.index.p.Set(key, row, pebble.NoSync)
	}
	if err != nil {
		panic(err)
	}
	db.DropCaches()
}

// Value is what a row stands for.
func (db *DB) Value(key, row []byte) ([]byte, error) { return db.index.content(key, row) }

// ValueKey returns the key that a stored value is sealed under.
func ValueKey(stored []byte) chain.KeyID { return sealrules.KeyOf(stored) }

// DropCaches makes the next reads come from disk.
func (db *DB) DropCaches() {
	db.traces.cache.clear()
	db.records.recent.clear()
	db.index.archive.clear()
	if db.filter != nil {
		db.filter.asked.Store(nil) // Pebble answers
	}
	db.traces.begun.init(nowhere)
}

// Flush writes the memtables to tables.
func (db *DB) Flush() error { return db.health.awaited(db.index.p.Flush) }

// Queued returns how many batches wait for the commit of those before them.
func (db *DB) Queued() int {
	db.commits.mu.Lock()
	defer db.commits.mu.Unlock()
	n := 0
	for _, g := range db.commits.queue {
		n += len(g.members)
	}
	return n
}

// Underway returns how many traces have an append that is not durable yet.
func (db *DB) Underway() int {
	db.traces.tails.mu.Lock()
	defer db.traces.tails.mu.Unlock()
	return len(db.traces.tails.byID)
}

// QueuedSizes returns the sizes in bytes of the batches that wait, by group.
func (db *DB) QueuedSizes() [][]int {
	db.commits.mu.Lock()
	defer db.commits.mu.Unlock()
	var out [][]int
	for _, g := range db.commits.queue {
		var sizes []int
		for _, c := range g.members {
			sizes = append(sizes, c.ops.Len())
		}
		out = append(out, sizes)
	}
	return out
}

// Locked returns how many names are locked.
func (db *DB) Locked() int {
	db.traces.locks.mu.Lock()
	defer db.traces.locks.mu.Unlock()
	db.records.locks.mu.Lock()
	defer db.records.locks.mu.Unlock()
	return len(db.traces.locks.held) + len(db.records.locks.held)
}

const (
	MaxBgErrs = maxBackgroundErrors
	MaxQueued = maxQueued
	MaxGroup  = maxGroup
)

func contextWithCancel() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}

func newTestTrace(n byte) *chain.Trace { return chain.NewTrace(tga.ID{n}) }

var bigDocument = chain.Document{Data: make([]byte, 20_000)}

// Landmarks counts the rows by which the global order is found.
func Landmarks(db *DB) (n int) {
	lower, upper := keyspace.GlobalBounds()
	if err := db.index.scanRows(lower, upper, func(_, _ []byte) error { n++; return nil }); err != nil {
		panic(err)
	}
	return n
}

// LogEnd is where the newest record of the log ends, in its segment.
func LogEnd(db *DB) uint32 { return db.wal.End().End }

// NewBloom makes a filter of ledger keys.
func NewBloom(keys, limit uint64) *bloom64 { return newBloom(keys, limit) }

func (f *bloom64) Set(key *[32]byte)      { f.set(key) }
func (f *bloom64) Has(key *[32]byte) bool { return f.has(key) }
func (f *bloom64) Bytes() uint64          { return uint64(len(f.lines)) * lineBits / 8 }

// MakeFilter makes the filter of ledger keys anew.
func MakeFilter(db *DB) error { return db.records.filter.make(0) }

// NeverUsed asks the filter alone.
func NeverUsed(db *DB, key ledger.Key) bool {
	hash := key.Hash()
	return db.records.filter.never(&hash)
}

// ExchangeLedgerRow takes the row of a ledger key away, and puts it under another one.
func ExchangeLedgerRow(db *DB, key, other ledger.Key, put bool) {
	from, to := keyspace.AppendLedger(nil, key.Hash()), keyspace.AppendLedger(nil, other.Hash())
	row := []byte(db.Rows()[string(from)])
	db.PutRow(from, nil)
	if put {
		db.PutRow(to, row)
	}
}

// ReadError is an error of Pebble as a read returns it.
func ReadError(err error) error { return readError(err) }

// FailBackground tells a store that Pebble's background work failed, as often.
func FailBackground(db *DB, err error, times int) {
	l := (&opening{standing: db.standing, opened: *db.opened}).listener().events()
	for range times {
		done := make(chan struct{})
		go func() { // the last one ends its goroutine
			defer close(done)
			l.BackgroundError(err)
		}()
		<-done
	}
}

// FilterFailed tells a store what became of a filter that nobody waits for.
func FilterFailed(db *DB, err error) { db.records.filter.failed(err) }

var ErrOtherKeys = errOtherKeys

// RestOf is the rest of one goroutine for each unit of work.
func RestOf(percent, processors int) float64 { return restOf(percent, processors) }

// RoomToRewrite asks whether the disk has room for what is made of so many bytes.
func RoomToRewrite(db *DB, bytes int64) error { return db.rewriting.roomToRewrite(bytes) }

// RewriteStep does what the rewriter would do next, in this goroutine; false where that is nothing.
func RewriteStep(db *DB) (bool, error) { return RewriteSteps(db)() }

// RewriteSteps is RewriteStep for several steps of one rewriter.
func RewriteSteps(db *DB) (step func() (bool, error)) {
	r := &rewriter{rewriting: db.rewriting, health: &db.health, stats: &db.stats, pacer: newPacer()}
	return func() (bool, error) { return r.step(context.Background()) }
}

// DeadBytes counts the bodies that nobody needs, by segment of the log.
func DeadBytes(db *DB) map[uint64]int64 {
	list, err := db.rewriting.candidates(context.Background(), nil)
	if err != nil {
		panic(err)
	}
	dead := map[uint64]int64{}
	for _, c := range list {
		dead[c.Number] = c.dead
	}
	return dead
}

// MayWait reports whether so much idle room of segments is left to a rewriter of that share, and
// MostIdleInAll is how much is.
func MayWait(share int, idle int64) bool { return mayWait(share, idle) }

const MostIdleInAll = mostIdleInAll

// Lock gives a lock back.
type Lock func()

// LockTrace holds the lock of a trace.
func (db *DB) LockTrace(id tga.ID) Lock {
	if err := db.traces.lockQueued(context.Background(), id); err != nil {
		panic(err)
	}
	return func() { db.traces.unlock(id) }
}

// LockKey holds the lock of a ledger key.
func (db *DB) LockKey(key [32]byte) Lock {
	if err := db.records.lock(context.Background(), tga.ID{}, key); err != nil {
		panic(err)
	}
	return func() { db.records.unlock(key) }
}

// SealBytes is what a trace counts toward the size of the segment that it would be archived in.
func SealBytes(db *DB, id tga.ID, before tga.Millis) (int, error) {
	s := &sealing{}
	_, err := db.sealer.find(s, id, before)
	return s.bytes, err
}

// Bodies calls f for every body that the log still has, whether a row names it or not.
func (db *DB) Bodies(f func(key, body []byte)) error {
	defer db.wal.Pin()()
	_, err := db.wal.Audit(func(r *wal.Record) error {
		return r.Ops(func(op *wal.Op) error {
			var body []byte
			var err error
			switch op.Place {
			case wal.Inline:
				body, err = db.wal.Read(op.Ref, op.Key)
			case wal.InFile:
				body, err = db.wal.ReadFile(op.File, op.Key)
			}
			if wal.Gone(err) || op.Place == wal.InFile && err != nil {
				return nil
			}
			f(op.Key, body)
			return err
		})
	})
	return err
}

// NextSegment begins a segment of the log.
func (db *DB) NextSegment() error {
	w := db.commits.newWriter()
	w.delete(keyspace.AppendMeta(nil, metaErasing))
	return db.commits.applyIn(w, true)
}

// failing is a source of reads that cannot read the keys of a kind.
type failing struct {
	reader
	kind keyspace.Kind
}

func (f failing) NewIter(o *pebble.IterOptions) (*pebble.Iterator, error) {
	if len(o.LowerBound) > 0 && o.LowerBound[0] == byte(f.kind) {
		return nil, pebble.ErrCorruption
	}
	return f.reader.NewIter(o)
}

// FailReads makes ranges of keys of a kind unreadable until the function that it returns is called.
func (db *DB) FailReads(kind keyspace.Kind) (undo func()) {
	from := db.index.from
	db.index.from = failing{from, kind}
	return func() { db.index.from = from }
}

// RoomUsed is how many appends have a place in the queue.
func RoomUsed(db *DB) int { return len(db.commits.room) }
