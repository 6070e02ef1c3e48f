package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
	"github.com/tgad/tgad/wal/chain"
)

// Report is what [DB.Check] found.
type Report struct {
	Traces   int // including archived traces
	Archived int
	Open     int
	Entries  int
	Notes    int
	Records  int // of the ledger
	Segments int
	Leaves   int // of the global order
	// Unread counts traces, and values beside them, whose keys are not available: the ring lacks the key, or
	// no ring was given. Check verifies only the links of these, not their contents.
	Unread   int
	Problems []Problem
}

// Problem is one inconsistency of the store.
type Problem struct {
	TraceID          tga.ID // zero if it concerns no trace
	Seq              uint64 // of the entry, 0 if it concerns no entry
	Note             uint32
	Stored, Computed tga.Digest // if two digests differ
	Err              error
}

func (p Problem) String() string {
	s := p.Err.Error()
	if p.Stored != p.Computed {
		s += fmt.Sprintf(" (stored %s, computed %s)", p.Stored, p.Computed)
	}
	return s
}

// Check reads the whole store and reports every inconsistency. It checks that the log has every
// durable record; that each trace replays; that each ledger record, each row of the open index and
// each checkpoint agrees with the traces; that the global order has no hole and covers every entry
// and note once; that each key and each chunk belongs to something; and that each file of a backup is what
// its manifest says. It works on one read view, which has every append whole or not at all, so it can run
// beside appends. An error says that Check could not go on; it does not say that Check found a problem.
func (db *DB) Check(ctx context.Context) (rep Report, err error) {
	if err := db.health.enter(); err != nil {
		return rep, err
	}
	defer db.health.leave()
	work := db.works.begin("verify")
	defer db.works.end(work)
	var pace *pacer
	if !db.readOnly {
		pace = newPacer()
	}
	return db.check(ctx, pace, work)
}

func (db *DB) check(ctx context.Context, pace *pacer, work *work) (rep Report, err error) {
	prefix := db.order.durable()
	v := db.index.view()
	defer func() { err = closeView(v, err) }()
	tried := &triedKeys{Keys: v.keys}
	if v.keys == nil {
		tried.Keys, tried.none = chain.NoKeys{}, true
	}
	v.keys, v.archive = tried, newArchive(tried)
	c := &checker{tried: tried, logger: db.log, ringed: &db.ringed, erased: map[tga.ID]erasedCall{}, doubted: db.doubt != nil, ctx: ctx, v: v, said: time.Now(), pace: pace, work: work, nextLeaf: 1}
	c.folds.init(1024, 64<<20)
	for _, step := range []func() error{
		func() error { return c.backup(db) }, c.log, c.keys, c.traces, c.segments, c.records, c.orphans, func() error { return c.order(prefix) },
	} {
		if err := step(); err != nil {
			return c.Report, err
		}
	}
	if c.Unread > 0 && !tried.none {
		c.Problems = append(c.Problems, Problem{Err: sealrules.NotVerified(c.Unread)})
	}
	return c.Report, nil
}

type checker struct {
	Report
	logger  *slog.Logger
	doubted bool // the store is already known to lack records of the log
	ctx     context.Context
	v       view
	pace    *pacer    // nil if nobody else uses the store
	work    *work     // gets the progress
	said    time.Time // when progress was last logged
	owned   int       // ledger records that some trace's log accounts for
	ringed  *ringed
	tried   *triedKeys
	erased  map[tga.ID]erasedCall // traces whose call was erased, and that may have reserved a key

	leafEntries, leafNotes int
	unreadable             bool // some trace could not be counted
	newestTS, committed    tga.Millis

	// Of the global order.
	nextLeaf  uint64 // the index that comes next
	folds     lru[tga.ID, fold]
	landmarks int
	landmark  struct {
		first uint64
		at    wal.Position
	}
}

// triedKeys are the keys of a check. A check without some of the keys still verifies the chains: it reads an
// entry whose key is not available as if it were erased, and counts it.
type triedKeys struct {
	chain.Keys
	none    bool // no ring was given
	missing int
	counted int
}

func (k *triedKeys) Open(dst []byte, key chain.KeyID, sealed, aad []byte) ([]byte, error) {
	out, err := k.Keys.Open(dst, key, sealed, aad)
	if !k.none && tga.CodeOf(err) != tga.StoreUnavailable {
		return out, err
	}
	k.missing++
	return nil, chain.ErrKeyDestroyed
}

// settle marks everything that could not be opened so far as counted.
func (k *triedKeys) settle() { k.counted = k.missing }

// unread counts one trace or value if something in it could not be opened since [triedKeys.settle].
func (c *checker) unread() {
	if c.tried.missing > c.tried.counted {
		c.Unread++
	}
	c.tried.settle()
}

// problem records err, unless it says that the store cannot be read at all.
func (c *checker) problem(id tga.ID, err error) error {
	if err == nil {
		return nil
	}
	p := Problem{TraceID: id, Err: err}
	var e *tga.Error
	if errors.As(err, &e) {
		if e.Code == tga.StoreUnavailable {
			return err
		}
		p.Seq, p.Note, p.Stored, p.Computed = e.Seq, e.Note, e.GotDigest, e.WantDigest
	}
	c.Problems = append(c.Problems, p)
	return nil
}

func (c *checker) problemf(id tga.ID, format string, args ...any) error {
	return c.problem(id, damaged(format, args...).In(id))
}

// log reads the log itself, as far as the view has its rows. It checks the chain from the first
// record on, the global order, and all bodies that the log still has, also bodies that no row names.
func (c *checker) log() error {
	defer c.v.log.Pin()()
	newest, err := c.v.position()
	if err := c.problem(tga.ID{}, err); err != nil {
		return err
	}
	tail, err := c.v.log.Audit(func(r *wal.Record) error {
		c.pace.step(c.ctx)
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if r.At.Group <= newest.at.Group {
			if err := c.group(r); err != nil {
				return err
			}
		}
		return r.Ops(func(op *wal.Op) error {
			if op.Place != wal.Inline {
				return nil
			}
			_, err := c.v.log.Read(op.Ref, op.Key)
			if wal.Gone(err) {
				return nil
			}
			return c.problem(tga.ID{}, err)
		})
	})
	if tail.Doubt != nil && !c.doubted {
		return errors.Join(err, c.problem(tga.ID{}, tail.Doubt))
	}
	return err
}

func (c *checker) keys() error {
	return c.v.scanRows([]byte{0}, nil, func(key, row []byte) error {
		err := keyspace.Check(key)
		if kind, ok := keyspace.KindOf(key); err == nil && ok && !ofTraces(kind) {
			err = c.value(kind, key, row)
		}
		return errors.Join(c.problem(tga.ID{}, err), c.ctx.Err())
	})
}

// value reads the value of a row. If it is a sealed attachment, value also opens it.
func (c *checker) value(kind keyspace.Kind, key, row []byte) error {
	stored, err := c.v.content(key, row)
	if err == nil && slices.Contains(chain.AttachmentKinds, chain.AttachmentKind(kind)) {
		c.tried.settle()
		_, err = sealrules.Open(key, stored, c.v.keys)
		c.unread()
	}
	if errors.Is(err, chain.ErrKeyDestroyed) {
		return nil
	}
	return err
}

// scan calls f for each key of a range whose value can be read. If its row or its body is
// damaged, that is a problem of this key alone.
func (c *checker) scan(lower, upper []byte, f func(key, value []byte) error) error {
	return c.v.scanRows(lower, upper, func(key, row []byte) error {
		value, err := c.v.content(key, row)
		if err != nil {
			c.unreadable = true
			return c.problem(tga.ID{}, err)
		}
		return f(key, value)
	})
}

// ofTraces reports whether the values of a kind are read together with their traces.
func ofTraces(kind keyspace.Kind) bool {
	return kind == keyspace.Entry || kind == keyspace.Chunk || kind == keyspace.Note || kind == keyspace.Segment
}

// eachTrace calls f for each trace that has a key of a kind, in the order of ids.
func (c *checker) eachTrace(kind keyspace.Kind, f func(tga.ID) error) error {
	next, _ := keyspace.Bounds(kind)
	for next != nil {
		ids, rest, err := c.v.traceIDs(kind, next, 256)
		if err != nil {
			return c.problem(tga.ID{}, err)
		}
		for _, id := range ids {
			if err := errors.Join(c.ctx.Err(), f(id)); err != nil {
				return err
			}
		}
		next = rest
	}
	return nil
}

func (c *checker) traces() error { return c.eachTrace(keyspace.Entry, c.traceOf) }

// traceOf checks everything that the store has of a trace. It is a method, and another method
// decodes the rows, because the same loops over iterators in a function literal made the
// garbage collector find bad pointers (go1.26.8, TestCheckUnderGCPressure).
func (c *checker) traceOf(id tga.ID) error {
	rows, err := c.v.rows(id)
	if err != nil {
		return c.problem(id, err)
	}
	spilled := map[uint64]bool{}
	rows.spilled = func(seq uint64) { spilled[seq] = true }
	c.tried.settle()
	t, err := rows.decode()
	if err != nil {
		return c.lost(id, err)
	}
	c.unread()
	folded, err := c.trace(t)
	if err != nil || folded == nil {
		return err
	}
	if err := c.openIndex(folded); err != nil {
		return err
	}
	if err := c.checkpoints(folded); err != nil {
		return err
	}
	lower, upper := keyspace.TraceChunkBounds(id)
	return c.v.scanRows(lower, upper, func(key, _ []byte) error {
		if _, seq, n, err := keyspace.ParseChunk(key); err == nil && !spilled[seq] {
			return c.problemf(id, "chunk %d of entry %d of trace %s is not used by any part of the entry", n, seq, id)
		}
		return nil
	})
}

// trace replays a trace and compares its ledger record; nil if the trace does not replay.
func (c *checker) trace(t *segment.Trace) (*chain.Trace, error) {
	c.count(t)
	if len(t.Entries) == 0 {
		return nil, c.lost(t.ID, damaged("trace %s has no entry", t.ID))
	}
	folded, err := t.Replay()
	if err != nil {
		return nil, c.lost(t.ID, err)
	}
	return folded, c.record(t, folded)
}

func (c *checker) count(t *segment.Trace) {
	c.step()
	c.Traces++
	c.Entries += len(t.Entries)
	c.Notes += len(t.Notes)
}

// lost records a trace that does not replay. Its entries are missing from the totals, so the
// totals are no longer compared.
func (c *checker) lost(id tga.ID, err error) error {
	c.unreadable = true
	return c.problem(id, recoveryFailed(id, err))
}

// record compares the ledger record of the trace's key with the record that follows from the
// trace's log.
func (c *checker) record(t *segment.Trace, folded *chain.Trace) error {
	var call, effect chain.Entry
	for _, e := range t.Entries {
		switch e.Type {
		case tga.CallType:
			call = e
		case tga.EffectType:
			effect = e
		}
	}
	if folded.Call == nil && call.Seq > 0 {
		c.erased[t.ID] = erasedCall{call.LogEntry, effect.LogEntry}
	}
	if folded.Call == nil || ledger.NeverSent(folded.Call) {
		return nil
	}
	want, _, err := ledger.FromTrace(folded.Call, call.Seq, uint64(call.Epoch), min(call.TS, call.Committed), folded.Effect, effect.Seq, folded.Notes)
	if err != nil {
		return c.problem(t.ID, err)
	}
	want.RequestDigest = c.ringed.digest(folded.Call.Call.Call)
	value, err := c.v.get(keyspace.AppendLedger(nil, ledger.KeyOf(folded.Namespace, folded.Call).Hash()))
	if err != nil {
		return c.problem(t.ID, err)
	}
	var got *ledger.Record
	if value != nil {
		if got, err = ledger.DecodeRecord(value); err != nil {
			return c.problem(t.ID, err)
		}
		if got.Status != ledger.Expired && got.TraceID == t.ID {
			c.owned++
		}
	}
	return c.problem(t.ID, want.Check(folded.Call.Call.IdempotencyKey, got))
}

func (c *checker) openIndex(t *chain.Trace) error {
	value, err := c.v.get(keyspace.AppendOpen(nil, t.ID))
	if err != nil {
		return c.problem(t.ID, err)
	}
	if t.Head.State.Terminal() {
		if value != nil {
			return c.problemf(t.ID, "trace %s is %s and among the open traces", t.ID, t.Head.State)
		}
		return nil
	}
	c.Open++
	want := appendOpenValue(nil, t)
	if t.Request == nil && len(value) > len(want) {
		// The data key of this open trace was destroyed, but not by this store, which erases no
		// open trace. Only this row has its namespace and deadline, so they are not compared.
		want = append(append(want[:10], value[10:18]...), value[len(want):]...)
	}
	if !bytes.Equal(value, want) {
		return c.problemf(t.ID, "trace %s is %s, its row in the index of open traces disagrees", t.ID, t.Head.State)
	}
	return nil
}

func (c *checker) checkpoints(t *chain.Trace) error {
	lower, upper := keyspace.CheckpointBounds(t.ID)
	return c.scan(lower, upper, func(key, value []byte) error {
		_, err := verifyCheckpoint(t, kv{key, value})
		return c.problem(t.ID, err)
	})
}

// erasedCall is what the entries of a trace still say about its erased call. They no longer say
// which ledger key the call had, and whether it was to be sent.
type erasedCall struct{ call, effect tga.LogEntry }

// agrees compares everything that is still known with the ledger record that names the trace.
func (e erasedCall) agrees(r *ledger.Record) bool {
	if r.Seq != e.call.Seq || r.ToolCallID != e.call.ToolCallID {
		return false
	}
	if e.effect.Seq == 0 {
		return r.Status == ledger.Reserved
	}
	return r.Status == ledger.Settled && r.EffectSeq == e.effect.Seq && r.EffectDigest == e.effect.ArtifactDigest
}

// records counts the ledger records. Each trace accounts for at most one record, and each record
// that is not expired names one trace. So if the counts are equal, every record is accounted for.
func (c *checker) records() error {
	named := 0
	at, err := c.v.position()
	if err != nil {
		return c.problem(tga.ID{}, err)
	}
	var sum uint64
	lower, upper := keyspace.LedgerBounds()
	if err := c.scan(lower, upper, func(key, value []byte) error {
		c.Records++
		sum += keySum(key)
		r, err := ledger.DecodeRecord(value)
		if err != nil {
			return c.problem(tga.ID{}, err)
		}
		if r.Status != ledger.Expired {
			named++
		}
		if e, ok := c.erased[r.TraceID]; ok && r.Status != ledger.Expired {
			c.owned++
			if !e.agrees(r) {
				return c.problemf(r.TraceID, "trace %s, which was erased: the record of its key is not what its entries say", r.TraceID)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if uint64(c.Records) != at.keys || sum != at.sum {
		if err := c.problemf(tga.ID{}, "the ledger has %d records, or wrong ones; want %d", c.Records, at.keys); err != nil {
			return err
		}
	}
	if named != c.owned && !c.unreadable {
		return c.problemf(tga.ID{}, "%d ledger records name a trace, the logs account for %d", named, c.owned)
	}
	return nil
}

// orphans looks for keys of traces that have no entry. It skips traces of the archive segment
// that is being sealed, because their keys are about to be removed.
func (c *checker) orphans() error {
	sealing, err := c.v.metaNumber(metaSealing)
	if err != nil {
		return c.problem(tga.ID{}, err)
	}
	for _, kind := range []keyspace.Kind{keyspace.Chunk, keyspace.Note, keyspace.Checkpoint, keyspace.Open} {
		if err := c.eachTrace(kind, func(id tga.ID) error {
			row, err := c.v.row(keyspace.AppendEntry(nil, id, 1))
			if err != nil || row != nil {
				return c.problem(id, err)
			}
			leaves := false
			if sealing > 0 {
				if leaves, err = c.sealedIn(id, sealing); err != nil {
					return c.problem(id, err)
				}
			}
			if leaves {
				return nil
			}
			return c.problemf(id, "trace %s has a key of kind %c and no first entry", id, kind)
		}); err != nil {
			return err
		}
	}
	return nil
}

// sealedIn reports whether the tombstone of a trace names that segment.
func (c *checker) sealedIn(id tga.ID, segment uint64) (bool, error) {
	raw, err := c.v.get(keyspace.AppendTombstone(nil, id))
	if err != nil || raw == nil {
		return false, err
	}
	stone, err := decodeTombstone(raw)
	return stone.Segment == segment, err
}
