// Package search is an index of the traces of a store by what a list is asked for: server, tool, key,
// namespace, state, outcome, and the time since which a trace is in its state. With it the newest
// calls of a store, or those of one tool, are a page read by index where a store alone is read from
// one end to the other.
//
// It is a function of the log. It lies in a SQLite database beside the log and is made behind it: no
// append waits for it, and each of its transactions says up to which append it has come. So it is
// lost without harm: what is damaged, of another store, or ahead of a store that was put back is made
// anew. A list never shows what only the index says: it gives ids, and the rest is read from the log.
//
// # Invariants
//
//	behind   no row is of an append that is not durable               [store.Follow]     TestIndexIsAFunctionOfTheLog
//	whole    after a crash at any point the index is that of the log  [Index.catchUp]    TestIndexIsAFunctionOfTheLog
//	erased   what was erased from the log is not left in the index    [Index.Erase]      TestErasedNamesLeaveTheIndex
//	paced    it takes a quarter of a processor, but for who waits     [Index.rest]       TestIndexRestsAfterItsWork
//	off      where none is asked for, none is left                    [Remove]           TestIndexThatIsNotAskedForIsRemoved
package search

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Store is the log that an index is made of.
type Store interface {
	Load(ctx context.Context, trace tga.ID) (*chain.Trace, error)
	Traces(ctx context.Context, after tga.ID) iter.Seq2[chain.Listed, error]
	Cursor() uint64
	Follow(ctx context.Context, after uint64) iter.Seq2[chain.Leaf, error]
}

// Options are those of an index.
type Options struct {
	Dir    string // made where it is not there; nothing else lies in it
	Driver string // of database/sql, for SQLite: who links it says its name
	Store  Store
	Logger *slog.Logger // nil = none
}

// Index is an index of lists. It is for use by many goroutines at once.
type Index struct {
	o    Options
	poke chan struct{} // has one where somebody waits for the index to catch up

	mu  sync.RWMutex // the database is opened, closed and made anew under it
	db  *sql.DB      // nil where it cannot be opened
	why error        // then

	// writing is held from before a trace is read from the log until its row is written: a row that was
	// read before an erasure never comes after the one that was read behind it.
	writing  sync.Mutex
	erasures int  // under way
	unsure   bool // something was erased, and not known which traces: all are looked at again

	standing sync.Mutex
	position uint64             // up to here the index is that of the log
	made     bool               // it has every trace up to there; false while it is made anew
	fault    error              // what a list met in the database: it is made anew
	grown    chan struct{}      // closed when either changes
	wake     context.CancelFunc // ends the wait for the next append
}

// Query asks for a page of traces, the newest first. What it leaves out matches everything.
type Query struct {
	Namespace         string
	Server, Tool, Key string
	States            []tga.State // any of them
	Class             ledger.Class
	Since, Until      tga.Millis // since when it is in its state: from, and before; 0 = no bound
	After             Mark       // the last row of the page before
	Limit             int
}

// Mark is a place in the order of a list. Two traces of one millisecond are in the order of their ids.
type Mark struct {
	Since tga.Millis
	Trace tga.ID
}

const (
	// batchTime is how long appends are waited for that go into one transaction with the first.
	batchTime = 200 * time.Millisecond
	// batchTraces is how many traces one transaction takes.
	batchTraces = 1000
	// share is what part of one processor the index takes at most: one in so many.
	share = 4
	// patience is for how long a list waits for the appends before it to be in the index.
	patience = time.Second
	// errorPause is between two tries of what failed; the pause doubles up to longestPause.
	errorPause, longestPause = 5 * time.Second, time.Minute
)

// New opens the index of a store. What cannot be opened, or is not of this store, is made anew by
// [Index.Run].
func New(ctx context.Context, o Options) *Index {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	x := &Index{o: o, poke: make(chan struct{}, 1), grown: make(chan struct{}), wake: func() {}}
	if err := x.open(ctx); err != nil {
		x.remake(ctx, err)
	}
	return x
}

// Close closes the database, after Run has returned.
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shut(tga.Errorf(tga.StoreUnavailable, "the index of lists is closed"))
}

// Behind is how many appends are not in the index yet.
func (x *Index) Behind() uint64 {
	newest := x.o.Store.Cursor()
	position, made, _ := x.stands()
	if !made {
		return newest
	}
	return newest - min(newest, position)
}

// Run keeps the index until ctx ends or the store closes. What fails again before anything has come of it
// is tried after a pause: a new index does not mend a disk.
func (x *Index) Run(ctx context.Context) {
	for wait := time.Duration(0); ctx.Err() == nil; {
		went, err := x.keep(ctx)
		if ctx.Err() != nil || errors.Is(err, errStore) {
			return
		}
		if went {
			wait = 0
		}
		pause(ctx, wait)
		wait = min(max(2*wait, errorPause), longestPause)
		if noRoom(err) { // what it has is good, and is thrown away for nothing
			x.o.Logger.Warn("the index of lists waits for room on the disk", "error", err)
			continue
		}
		x.remake(ctx, err)
	}
}

// noRoom reports whether SQLite says that the disk is full.
func noRoom(err error) bool {
	const full = 13 // SQLITE_FULL
	var of interface{ Code() int }
	return errors.As(err, &of) && of.Code()&0xff == full
}

// errStore is in every error that is the store's, and not of the index.
var errStore = errors.New("the store of the index")

// keep makes what is missing of the index, and follows the log. went says that something came of it.
func (x *Index) keep(ctx context.Context) (went bool, err error) {
	for {
		if err := x.faulty(); err != nil {
			return went, err
		}
		if _, made, _ := x.stands(); !made || x.swept() {
			if err := x.make(ctx); err != nil {
				return went, err
			}
			went = true
		}
		if err := x.wait(ctx); err != nil {
			return went, err
		}
		if x.faulty() != nil {
			continue
		}
		x.lull(ctx, batchTime)
		if err := x.catchUp(ctx); err != nil {
			return went, err
		}
		went = true
	}
}

// wait returns when there is an append that the index does not have, or all traces are to be looked at again.
func (x *Index) wait(ctx context.Context) error {
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	x.standing.Lock()
	x.wake = cancel
	at := x.position
	x.standing.Unlock()
	if x.swept() {
		return nil
	}
	if x.faulty() != nil {
		return nil
	}
	_, err := x.next(waits, at)
	if waits.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// next returns the leaf after an append, and waits for it.
func (x *Index) next(ctx context.Context, after uint64) (chain.Leaf, error) {
	for l, err := range x.o.Store.Follow(ctx, after) {
		if err != nil {
			return l, errors.Join(errStore, err)
		}
		return l, nil
	}
	return chain.Leaf{}, errStore
}

// catchUp takes the appends into the index that are durable now.
func (x *Index) catchUp(ctx context.Context) error {
	newest := x.o.Store.Cursor()
	for at, _, _ := x.stands(); at < newest; {
		began := time.Now()
		touched := map[tga.ID]struct{}{}
		var last chain.Leaf
		for l, err := range x.o.Store.Follow(ctx, at) {
			if err != nil {
				return errors.Join(errStore, err)
			}
			touched[l.TraceID], last = struct{}{}, l
			if l.Index >= newest || len(touched) == batchTraces {
				break
			}
		}
		if err := x.take(ctx, slices.Collect(maps.Keys(touched)), &last); err != nil {
			return err
		}
		at = last.Index
		x.advance(at)
		x.rest(ctx, began)
	}
	return nil
}

// make makes the index of every trace, or looks at every trace again.
func (x *Index) make(ctx context.Context) (err error) {
	start, traces := time.Now(), 0
	_, made, _ := x.stands()
	var from *chain.Leaf // what was appended since is followed afterwards
	if cursor := x.o.Store.Cursor(); !made && cursor > 0 {
		l, err := x.next(ctx, cursor-1)
		if err != nil {
			return err
		}
		from = &l
	}
	x.begin()
	ids, began := make([]tga.ID, 0, batchTraces), start
	for l, err := range x.o.Store.Traces(ctx, tga.ID{}) {
		if err != nil {
			return errors.Join(errStore, err)
		}
		if ids = append(ids, l.TraceID); len(ids) < batchTraces {
			continue
		}
		if err := x.take(ctx, ids, nil); err != nil {
			return err
		}
		traces, ids = traces+len(ids), ids[:0]
		x.rest(ctx, began)
		began = time.Now()
	}
	if err := x.take(ctx, ids, nil); err != nil {
		return err
	}
	if err := x.finish(ctx); err != nil {
		return err
	}
	// Only now: an index that says how far it is, and nothing of an erasure, is used as it lies there.
	if err := x.take(ctx, nil, from); err != nil {
		return err
	}
	if !made {
		var at uint64
		if from != nil {
			at = from.Index
		}
		x.advance(at)
	}
	x.o.Logger.Info("every trace is in the index of lists", "traces", traces+len(ids), "after", time.Since(start).Round(time.Millisecond))
	return nil
}

// take reads traces from the log and writes their rows, with the append that they are up to.
func (x *Index) take(ctx context.Context, ids []tga.ID, last *chain.Leaf) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	rows := make([]row, 0, len(ids))
	for _, id := range ids {
		t, err := x.o.Store.Load(ctx, id)
		switch code := tga.CodeOf(err); {
		case err == nil:
			rows = append(rows, rowOf(t))
		case code == tga.StoreUnavailable || ctx.Err() != nil:
			return errors.Join(errStore, err)
		} // one that cannot be read is in no list by index, and in every list by id
	}
	return x.put(ctx, rows, last)
}

// begin says that every trace is looked at, and finish that this was done: what was erased before begin
// is not in the index any more.
func (x *Index) begin() {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.unsure = false
}

func (x *Index) finish(ctx context.Context) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	return x.setErasing(ctx, x.unsure || x.erasures > 0)
}

// swept reports whether all traces are to be looked at again.
func (x *Index) swept() bool {
	x.writing.Lock()
	defer x.writing.Unlock()
	return x.unsure
}

// rest leaves the processor to others for as long as the work since began asks for, unless somebody waits
// for a list.
func (x *Index) rest(ctx context.Context, began time.Time) {
	x.lull(ctx, (share-1)*time.Since(began))
}

func (x *Index) lull(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-x.poke:
	case <-ctx.Done():
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// stands returns how far the index is, and what is closed when it is further.
func (x *Index) stands() (position uint64, made bool, grown <-chan struct{}) {
	x.standing.Lock()
	defer x.standing.Unlock()
	return x.position, x.made, x.grown
}

// advance says up to which append the index has every trace.
func (x *Index) advance(position uint64) {
	x.standing.Lock()
	defer x.standing.Unlock()
	x.position, x.made = position, true
	close(x.grown)
	x.grown = make(chan struct{})
}

// await waits until the index has what was durable when it was called. One that is behind is used as it
// is after some time, and one that is being made is not.
func (x *Index) await(ctx context.Context) error {
	newest := x.o.Store.Cursor()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		position, made, grown := x.stands()
		if made && position >= newest {
			return nil
		}
		select {
		case x.poke <- struct{}{}:
		default:
		}
		select {
		case <-grown:
		case <-ctx.Done():
			if made {
				return nil
			}
			return tga.Errorf(tga.StoreUnavailable, "the index of lists is being made. List by id, or ask again later")
		}
	}
}

// Find returns a page of traces that match, the newest first. They are those of the index: who lists
// them reads from the log what they are now.
func (x *Index) Find(ctx context.Context, q Query) ([]Mark, error) {
	if err := x.await(ctx); err != nil {
		return nil, err
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.db == nil {
		return nil, x.why
	}
	page, err := find(ctx, x.db, q)
	if err != nil && ctx.Err() == nil {
		full := noRoom(err)
		err = tga.Errorf(tga.StoreUnavailable, "the index of lists: %w", err)
		if full {
			return nil, err
		}
		x.standing.Lock()
		defer x.standing.Unlock()
		x.fault, x.made = err, false // what is only read is met by nobody else
		x.wake()
	}
	return page, err
}

// faulty returns what a list met in the database.
func (x *Index) faulty() error {
	x.standing.Lock()
	defer x.standing.Unlock()
	return x.fault
}

// Erase carries an erasure out and takes what was erased out of the index. The word that one is under way
// is durable before it begins: after a crash the index is made of the log anew. of are the traces
// that it is about; nil where that is not known, and then [Index.Run] looks at all of them again.
func (x *Index) Erase(ctx context.Context, of []tga.ID, erase func() error) error {
	if err := x.erasing(ctx); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "nothing was erased, for the index of lists cannot note it: %w", err)
	}
	err := erase()
	if err == nil && of != nil {
		if take := x.take(context.WithoutCancel(ctx), of, nil); take != nil {
			x.o.Logger.Warn("the index of lists could not forget what was erased: all traces are looked at again", "error", take)
			of = nil
		}
	}
	x.erased(context.WithoutCancel(ctx), err != nil || of == nil)
	return err
}

func (x *Index) erasing(ctx context.Context) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.erasures++
	err := x.setErasing(ctx, true)
	if err != nil {
		x.erasures--
	}
	return err
}

func (x *Index) erased(ctx context.Context, unsure bool) {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.erasures--
	x.unsure = x.unsure || unsure
	if x.unsure {
		x.standing.Lock()
		defer x.standing.Unlock()
		x.wake()
		return
	}
	if x.erasures == 0 {
		if err := x.setErasing(ctx, false); err != nil {
			x.o.Logger.Warn("the index of lists is made anew at the next start", "error", err)
		}
	}
}
