package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

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

// Reader is a store that reads many traces at once.
type Reader interface {
	// Read reads traces, and calls each with those that can be read.
	Read(ctx context.Context, ids []tga.ID, each func(*chain.Trace)) error
	// Known returns the trace as an append left it, if it is in memory and nothing was erased from it, otherwise nil. Do not change it.
	Known(l *chain.Leaf) *chain.Trace
	// Some returns ids of traces after an id, in their order. It returns none if there are no more.
	Some(ctx context.Context, after tga.ID) ([]tga.ID, error)
}

// Table stores the rows of an index. One goroutine at a time writes it, except for Erasing.
type Table interface {
	// Open opens the table, creates it if it does not exist, and returns how far it is. An error says why the table is
	// of no use.
	Open(ctx context.Context) (Standing, error)
	// Put writes rows and, if last is not nil, the append that the index has reached: all or nothing. If another
	// process has taken the table over, Put fails.
	Put(ctx context.Context, rows []Row, last *chain.Leaf) error
	// Find reads a page.
	Find(ctx context.Context, q Query) ([]Mark, error)
	// Erasing records durably that this process erases from the store (true), or that what it erased is no longer in the
	// table (false). A table that learns of erasures by itself does nothing.
	Erasing(ctx context.Context, is bool) error
	// Again returns the traces with erasures that the table has learned of by itself. Done removes them from that list
	// once their rows agree with the log.
	Again(ctx context.Context) ([]Span, error)
	Done(ctx context.Context, spans []Span) error
	// Clear deletes the whole table. Find returns why until the table is opened again.
	Clear(ctx context.Context, why error) error
	// Spoilt reports whether the table must be made anew after an error.
	Spoilt(err error) bool
	// Close closes the table. Find returns why from then on.
	Close(why error) error
}

// Standing is how far a table is.
type Standing struct {
	Made     bool   // it has every trace up to Position
	Position uint64 // index in the global order
	Leaf     []byte // [NameOf] of the append there; nil if the table itself has compared it with the store
}

// Span is a range of traces that must be read again.
type Span struct {
	Number      int64
	First, Last tga.ID
}

// ErrLeft is in the error of a table that another process maintains now, or that is opened again later. It ends
// [Index.Run].
var ErrLeft = errors.New("this process does not maintain the index of lists")

// Options are those of an index.
type Options struct {
	Table  Table
	Store  Store
	Look   time.Duration // how often [Table.Again] is called; 0 = never
	Logger *slog.Logger  // nil = none
	// Again is the pause before a trace that could not be read, for example because the key ring lacks its key, is read
	// again; 0 = a minute.
	Again time.Duration
	// Erasing reports whether the store has an erasure that was begun and is not finished; nil = never.
	Erasing func() bool
}

// Index makes a table follow the log. Many goroutines may use it at once.
type Index struct {
	o    Options
	poke chan struct{} // has a value if a list waits for the index to catch up
	left bool          // the table could not be opened, and this process must not make it anew

	// writing is held from before a trace is read from the log until its row is written. So a row that was
	// read before an erasure never replaces a row that was read after it.
	writing  sync.Mutex
	erasures int  // under way
	unsure   bool // traces were erased and it is not known which, so all must be read again
	unread   map[tga.ID]struct{}
	looked   time.Time // when the unread traces were last tried

	standing sync.Mutex
	position uint64             // up to this append the index agrees with the log
	made     bool               // it has every trace up to there; false while it is made anew
	fault    error              // of a list: the database is damaged and must be made anew
	grown    chan struct{}      // closed when either changes
	wake     context.CancelFunc // ends the wait for the next append
}

var _ Lists = (*Index)(nil)

const (
	// batchTime is how long the index waits for more appends for one transaction.
	batchTime = 200 * time.Millisecond
	// batchTraces is how many traces go into one transaction.
	batchTraces = 1000
	// share limits the index to one part in so many of one processor.
	share = 4
	// patience is how long a list waits until earlier appends are in the index.
	patience = time.Second
	// errorPause is the pause before a retry. It doubles up to longestPause.
	errorPause, longestPause = 5 * time.Second, time.Minute
)

// New opens the index of a store. If the index cannot be opened, or belongs to another store,
// [Index.Run] makes it anew.
func New(ctx context.Context, o Options) *Index {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Again = cmp.Or(o.Again, longestPause)
	if o.Erasing == nil {
		o.Erasing = func() bool { return false }
	}
	x := &Index{o: o, poke: make(chan struct{}, 1), unread: map[tga.ID]struct{}{}, grown: make(chan struct{}), wake: func() {}}
	switch err := x.open(ctx); {
	case errors.Is(err, ErrLeft):
		x.o.Logger.Warn("the index of lists cannot be opened", "error", err)
		x.left = true
	case err != nil:
		x.remake(ctx, err)
	}
	return x
}

// open opens the table and finds out how far it is. An error says why the table is of no use.
func (x *Index) open(ctx context.Context) error {
	s, err := x.o.Table.Open(ctx)
	if err != nil || !s.Made {
		return err
	}
	if s.Leaf != nil {
		if err := x.isOf(ctx, s.Position, s.Leaf); err != nil {
			return err
		}
	}
	x.advance(s.Position)
	return nil
}

// isOf refuses the index of another store, and an index of this store that is ahead of it because the
// store was restored.
func (x *Index) isOf(ctx context.Context, at uint64, leaf []byte) error {
	if newest := x.o.Store.Cursor(); at > newest {
		return fmt.Errorf("it has append %d, and the newest append of the store is %d", at, newest)
	}
	if at == 0 {
		return nil
	}
	l, err := x.next(ctx, at-1)
	if err != nil {
		return err
	}
	if string(leaf) != string(NameOf(&l)) {
		return fmt.Errorf("append %d of the store is not the one that the index has", at)
	}
	return nil
}

// NameOf returns bytes that identify a leaf.
func NameOf(l *chain.Leaf) []byte {
	return slices.Concat(l.TraceID[:], l.HeadDigest[:], l.NoteDigest[:])
}

// remake deletes the table and begins a new one. If that fails, lists return the reason.
func (x *Index) remake(ctx context.Context, why error) {
	x.o.Logger.Warn("the index of lists is made anew", "why", why)
	x.standing.Lock()
	x.position, x.made, x.fault = 0, false, nil
	x.standing.Unlock()
	err := x.o.Table.Clear(ctx, tga.Errorf(tga.StoreUnavailable, "the index of lists: %w", why))
	if err == nil {
		err = x.open(ctx)
	}
	if err != nil {
		err = errors.Join(err, x.o.Table.Close(tga.Errorf(tga.StoreUnavailable, "the index of lists: %w", err)))
		x.o.Logger.Warn("the index of lists cannot be made", "error", err)
	}
}

// Close closes the table, after Run has returned.
func (x *Index) Close() error {
	return x.o.Table.Close(tga.Errorf(tga.StoreUnavailable, "the index of lists is closed"))
}

// Behind implements [Lists].
func (x *Index) Behind() uint64 {
	newest := x.o.Store.Cursor()
	position, made, _ := x.stands()
	if !made {
		return newest
	}
	return newest - min(newest, position)
}

// Run implements [Lists]. If the work fails again before it made any progress, Run retries after a pause: a new index repairs
// neither a disk nor the store. If the store cannot be read and several processes share it, Run ends, because another process
// may be able to read it.
func (x *Index) Run(ctx context.Context) {
	trouble := ""
	for wait := time.Duration(0); ctx.Err() == nil && !x.left; {
		went, err := x.keep(ctx)
		store := errors.Is(err, errStore)
		if ctx.Err() != nil || store && x.o.Look > 0 || errors.Is(err, ErrLeft) {
			return
		}
		if went {
			wait = 0
		}
		pause(ctx, wait)
		wait = min(max(2*wait, errorPause), longestPause)
		if store || !x.o.Table.Spoilt(err) { // the rows are good, so do not throw them away
			if text := err.Error(); text != trouble {
				x.o.Logger.Warn("the index of lists stands still after an error", "error", err)
				trouble = text
			}
			continue
		}
		x.remake(ctx, err)
	}
}

// errStore is in every error that comes from the store and not from the index.
var errStore = errors.New("the store of the index")

// keep makes what is missing of the index, and follows the log. went says that it made progress.
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
		if err := x.again(ctx); err != nil {
			return went, err
		}
		if err := x.readAgain(ctx); err != nil {
			return went, err
		}
		came, err := x.wait(ctx)
		if err != nil {
			return went, err
		}
		if !came || x.faulty() != nil {
			continue
		}
		x.lull(ctx, batchTime)
		if err := x.catchUp(ctx); err != nil {
			return went, err
		}
		went = true
	}
}

// wait returns when there is an append that the index does not have. came is false if it returns because traces may have to be read again.
func (x *Index) wait(ctx context.Context) (came bool, err error) {
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	if x.o.Look > 0 {
		defer time.AfterFunc(x.o.Look, cancel).Stop()
	}
	if x.hasUnread() {
		defer time.AfterFunc(x.o.Again, cancel).Stop()
	}
	x.standing.Lock()
	x.wake = cancel
	at := x.position
	x.standing.Unlock()
	if x.swept() || x.faulty() != nil {
		return false, nil
	}
	if x.o.Store.Cursor() > at {
		return true, nil
	}
	if _, err = x.next(waits, at); err == nil {
		return true, nil
	}
	if waits.Err() != nil && ctx.Err() == nil {
		return false, nil
	}
	return false, err
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

// begin is called before every trace is read again, and finish afterwards. Then the index no longer has
// anything that was erased before begin.
func (x *Index) begin() {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.unsure = false
}

func (x *Index) finish(ctx context.Context) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	return x.o.Table.Erasing(ctx, x.unsure || x.erasures > 0 || x.o.Erasing())
}

// swept reports whether all traces must be read again.
func (x *Index) swept() bool {
	x.writing.Lock()
	defer x.writing.Unlock()
	return x.unsure
}

// rest sleeps in proportion to the work since began, so that the index keeps to its share of the
// processor. It returns at once if a list waits.
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

// stands returns how far the index is, and a channel that is closed when that changes.
func (x *Index) stands() (position uint64, made bool, grown <-chan struct{}) {
	x.standing.Lock()
	defer x.standing.Unlock()
	return x.position, x.made, x.grown
}

// advance records the append up to which the index has every trace.
func (x *Index) advance(position uint64) {
	x.standing.Lock()
	defer x.standing.Unlock()
	x.position, x.made = position, true
	close(x.grown)
	x.grown = make(chan struct{})
}

// await waits until the index has all appends that were durable when await was called. After some time
// it accepts an index that is behind, but not one that is being made.
func (x *Index) await(ctx context.Context) error {
	newest := x.o.Store.Cursor()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		position, made, grown := x.stands()
		if made && position >= newest {
			return nil
		}
		x.Hurry()
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

// Hurry ends a rest of the index, because a list waits.
func (x *Index) Hurry() {
	select {
	case x.poke <- struct{}{}:
	default:
	}
}

// Find implements [Lists].
func (x *Index) Find(ctx context.Context, q Query) ([]Mark, error) {
	if err := x.await(ctx); err != nil {
		return nil, err
	}
	page, err := x.o.Table.Find(ctx, q)
	if err == nil || ctx.Err() != nil || tga.CodeOf(err) != "" {
		return page, err
	}
	spoilt := x.o.Table.Spoilt(err)
	err = tga.Errorf(tga.StoreUnavailable, "the index of lists: %w", err)
	if spoilt {
		x.standing.Lock()
		defer x.standing.Unlock()
		x.fault, x.made = err, false // Run would not find damage that only a list reads
		x.wake()
	}
	return nil, err
}

// faulty returns the error of the database that a list got, if any.
func (x *Index) faulty() error {
	x.standing.Lock()
	defer x.standing.Unlock()
	return x.fault
}

// Erase calls erase, and removes what was erased from the index. It first records durably that an erasure
// is under way. So after a crash the index is made anew from the log. of lists the erased traces. If of is
// nil, they are not known, and [Index.Run] reads all traces again.
func (x *Index) Erase(ctx context.Context, of []tga.ID, erase func() error) error {
	if err := x.erasing(ctx); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "nothing was erased, because the index of lists cannot record that an erasure begins: %w", err)
	}
	err := erase()
	if err == nil && of != nil {
		if take := x.take(context.WithoutCancel(ctx), of, nil); take != nil {
			x.o.Logger.Warn("the index of lists could not remove what was erased, so it reads all traces again", "error", take)
			of = nil
		}
	}
	x.erased(context.WithoutCancel(ctx), err != nil || of == nil)
	return err
}

// FinishErasure continues an unfinished erasure. Once it is finished, all traces are read again.
func (x *Index) FinishErasure(ctx context.Context, finish func() error) error {
	if err := x.erasing(ctx); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "an erasure is not finished, because the index of lists cannot record it: %w", err)
	}
	err := finish()
	x.erased(context.WithoutCancel(ctx), !x.o.Erasing())
	return err
}

func (x *Index) erasing(ctx context.Context) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.erasures++
	err := x.o.Table.Erasing(ctx, true)
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
	if x.erasures == 0 && !x.o.Erasing() {
		if err := x.o.Table.Erasing(ctx, false); err != nil {
			x.o.Logger.Warn("the index of lists is made anew at the next start", "error", err)
		}
	}
}
