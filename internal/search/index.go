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
	// Read reads traces as they lie there, and gives those that can be read to each.
	Read(ctx context.Context, ids []tga.ID, each func(*chain.Trace)) error
	// Known is the trace as an append left it, where that is at hand and nothing was erased from it; nil otherwise. It is not changed.
	Known(l *chain.Leaf) *chain.Trace
	// Some returns ids of traces after one, in their order: none where there is no more.
	Some(ctx context.Context, after tga.ID) ([]tga.ID, error)
}

// Table is where the rows of an index lie. One goroutine at a time writes it, but for Erasing.
type Table interface {
	// Open opens it, makes one where there is none, and says how far it is. An error says why it is of no use.
	Open(ctx context.Context) (Standing, error)
	// Put writes rows and, where last is not nil, up to which append they are: all of it or nothing. Whoever writes
	// beside this process has the table since, and Put refuses.
	Put(ctx context.Context, rows []Row, last *chain.Leaf) error
	// Find reads a page.
	Find(ctx context.Context, q Query) ([]Mark, error)
	// Erasing notes durably that this process erases from the store, or that what it erased is not in the table any
	// more. A table that hears of erasures by itself has nothing to note.
	Erasing(ctx context.Context, is bool) error
	// Again returns traces of which something was erased that the table heard of by itself, and Done takes them back
	// from that list once their rows are those of the log.
	Again(ctx context.Context) ([]Span, error)
	Done(ctx context.Context, spans []Span) error
	// Clear throws all of it away. why is what Find says until it is opened again.
	Clear(ctx context.Context, why error) error
	// Spoilt reports whether after an error the table is to be made anew.
	Spoilt(err error) bool
	// Close closes it. why is what Find says from then on.
	Close(why error) error
}

// Standing is how far a table is.
type Standing struct {
	Made     bool   // it has every trace up to Position
	Position uint64 // of the order
	Leaf     []byte // [NameOf] of the append there; nil where the table compared that with the store itself
}

// Span is traces that are to be looked at again.
type Span struct {
	Number      int64
	First, Last tga.ID
}

// ErrLeft is in the error of a table that another process keeps now, or that is opened again later: [Index.Run] ends.
var ErrLeft = errors.New("the index of lists is left")

// Options are those of an index.
type Options struct {
	Table  Table
	Store  Store
	Look   time.Duration // how often [Table.Again] is asked; 0 = never
	Logger *slog.Logger  // nil = none
	// Again is after how long a trace is looked at again that could not be read, because the key ring lacks its key, say; 0 =
	// a minute.
	Again time.Duration
	// Erasing reports whether the store has an erasure that was begun and is not finished; nil = it has none.
	Erasing func() bool
}

// Index keeps a table behind the log. It is for use by many goroutines at once.
type Index struct {
	o    Options
	poke chan struct{} // has one where somebody waits for the index to catch up
	left bool          // it could not be opened, and is not this one's to make

	// writing is held from before a trace is read from the log until its row is written: a row that was
	// read before an erasure never comes after the one that was read behind it.
	writing  sync.Mutex
	erasures int  // under way
	unsure   bool // something was erased, and not known which traces: all are looked at again
	unread   map[tga.ID]struct{}
	looked   time.Time // when those were looked at last

	standing sync.Mutex
	position uint64             // up to here the index is that of the log
	made     bool               // it has every trace up to there; false while it is made anew
	fault    error              // what a list met in the database: it is made anew
	grown    chan struct{}      // closed when either changes
	wake     context.CancelFunc // ends the wait for the next append
}

var _ Lists = (*Index)(nil)

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

// open opens the table and finds out how far it is. An error says why it is of no use.
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

// isOf refuses an index of another store, and of this one before it was put back.
func (x *Index) isOf(ctx context.Context, at uint64, leaf []byte) error {
	if newest := x.o.Store.Cursor(); at > newest {
		return fmt.Errorf("it is up to append %d, and the newest of the store is %d", at, newest)
	}
	if at == 0 {
		return nil
	}
	l, err := x.next(ctx, at-1)
	if err != nil {
		return err
	}
	if string(leaf) != string(NameOf(&l)) {
		return fmt.Errorf("append %d of the store is another one than that of the index", at)
	}
	return nil
}

// NameOf is by what a leaf is told from every other.
func NameOf(l *chain.Leaf) []byte {
	return slices.Concat(l.TraceID[:], l.HeadDigest[:], l.NoteDigest[:])
}

// remake throws the table away and begins a new one. Where that cannot be had, lists say why.
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

// Run implements [Lists]. What fails again before anything has come of it
// is tried after a pause: a new index does not mend a disk, nor does it mend the store. Of a store that several processes have, another
// one may be able to read it: then Run ends.
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
		if store || !x.o.Table.Spoilt(err) { // what it has is good, and would be thrown away for nothing
			if text := err.Error(); text != trouble {
				x.o.Logger.Warn("the index of lists waits", "error", err)
				trouble = text
			}
			continue
		}
		x.remake(ctx, err)
	}
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

// wait returns when there is an append that the index does not have; came is false where instead traces may have to be looked at again.
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
	return x.o.Table.Erasing(ctx, x.unsure || x.erasures > 0 || x.o.Erasing())
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

// Hurry ends a rest: somebody waits.
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
		x.fault, x.made = err, false // what is only read is met by nobody else
		x.wake()
	}
	return nil, err
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

// FinishErasure goes on with an erasure that is not finished. Once it is, all traces are looked at again.
func (x *Index) FinishErasure(ctx context.Context, finish func() error) error {
	if err := x.erasing(ctx); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "an erasure is not finished, for the index of lists cannot note it: %w", err)
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
