package evidence

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/schemas/tga"
)

const (
	// lookTime is how often a process looks for notes of other processes, and whether it may sign itself.
	lookTime = time.Second
	// mostFresh is how many full tiles are in memory at most, before they are kept in the tables or dropped.
	mostFresh = 256
	// leavesPage is how many leaves are read at once.
	leavesPage = 1024
	// numberTime is how long a request for a receipt waits until the order has numbers for the trace's appends.
	numberTime = 5 * time.Second
)

// shared is the part of one process in the evidence of a store that several processes have open. It implements the
// [notes] of its [Keeper].
//
// One process signs. The database elects it ([Tables.Lead]) and compares its epoch with each note that it keeps. So a
// process that hung can keep nothing once another one signs. Each note names the note before it, which must be the
// newest. The other processes read the notes, compare them with the order, and answer from them.
type shared struct {
	k      *Keeper
	tables Tables
	signs  bool // this process has a key
	tiles  tilesOf

	turn  sync.Mutex    // held to look, to sign and to accept
	epoch atomic.Int64  // under which this process signs; 0 = it does not
	end   atomic.Uint64 // of the order, when it was read last

	last    Note         // the newest that is known
	newestN atomic.Int64 // the number of last, for goroutines that do not hold turn
	newest  []byte       // the newest checkpoint
	others  [][]byte     // the notes that are no checkpoints
	unsure  bool         // memory may differ from the tables: read all of them again
	looked  time.Time
	next    time.Time // when a checkpoint is due
}

// OpenShared is [Open] for a store that several processes have open, whose evidence is in tables. Without a key it
// answers from what other processes signed.
func OpenShared(ctx context.Context, store Store, tables Tables, o Options) (*Keeper, error) {
	signs := o.Signer.Public != ""
	o = o.withDefaults()
	if err := checkpoint.CheckOrigin(o.Origin); err != nil {
		return nil, err
	}
	k := &Keeper{opts: o, store: store, log: o.Logger, grown: make(chan struct{})}
	s := &shared{k: k, tables: tables, signs: signs, tiles: tilesOf{ctx: context.WithoutCancel(ctx), tables: tables}}
	s.tiles.s = s
	k.shared, k.file, k.tree = s, s, &swapped{}
	for _, t := range o.Places {
		k.places = append(k.places, &place{Target: t, log: o.Logger})
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.resign(context.WithoutCancel(ctx)))
	}
	return k, nil
}

// open compares the store with the checkpoints that were signed for it, and signs itself if no other process does.
func (s *shared) open(ctx context.Context) error {
	if err := s.load(ctx); err != nil || s.k.first == "" {
		return err
	}
	if s.signs {
		if err := s.k.mayHandOver(); err != nil {
			return err
		}
		err := s.elect(ctx)
		if errors.Is(err, ErrNotSigner) || errors.Is(err, ErrOtherNote) { // another process was faster; this one only answers
			s.epoch.Store(0)
			err = s.load(ctx)
		}
		if err != nil {
			return err
		}
	}
	if s.epoch.Load() == 0 { // else elect has compared already
		if err := s.k.compareAll(ctx); err != nil {
			return err
		}
	}
	s.k.showNewest()
	return nil
}

// load reads all that the tables have, and makes the tree of it.
func (s *shared) load(ctx context.Context) error {
	st, err := s.tables.Standing(ctx)
	if err != nil {
		return err
	}
	end, err := s.tables.End(ctx)
	if err != nil {
		return err
	}
	if !s.signs {
		if st.Key == "" {
			return nil // nobody has signed yet
		}
		if err := s.readOnly(st); err != nil {
			return err
		}
	}
	s.newest, s.others, s.last = st.Newest.Text, nil, st.Newest
	for _, n := range st.Others {
		s.others = append(s.others, n.Text)
		if n.Number > s.last.Number {
			s.last = n
		}
	}
	s.end.Store(end)
	t, err := tree.OpenTiled(s.tiles, int64(end))
	if err != nil {
		return err
	}
	s.k.tree.(*swapped).at.Store(t)
	if c, err := checkpoint.Unverified(s.newest); s.newest != nil && err == nil {
		if err := s.k.followTo(ctx, min(uint64(c.Size), end)); err != nil {
			return err
		}
	}
	if err := s.k.readKept(); err != nil {
		return err
	}
	s.newestN.Store(s.last.Number)
	return nil
}

// readOnly uses the public key from the tables, in a process that has no key. Nobody needs to trust that key: an
// auditor brings the key that he trusts.
func (s *shared) readOnly(st Standing) error {
	v, err := note.NewVerifier(st.Key)
	if err != nil {
		return tga.Errorf(tga.StateChecksumMismatch, "evidence: what is kept as public key is none: %w", err)
	}
	origin := v.Name()
	if c, err := checkpoint.Unverified(st.Newest.Text); err == nil {
		origin = c.Origin
	}
	if s.k.opts.Signer.Public != st.Key || s.k.opts.Origin != origin {
		s.k.opts.Signer.Public, s.k.opts.Origin = st.Key, origin
	}
	return nil
}

// elect asks the tables to let this process sign. If they do, it makes the process ready to sign.
func (s *shared) elect(ctx context.Context) error {
	epoch, err := s.tables.Lead(ctx)
	if err != nil || epoch == 0 {
		return err
	}
	// Read the tables after the election: the process that signed before can add nothing any more.
	if err := s.load(ctx); err != nil {
		return err
	}
	s.epoch.Store(epoch)
	s.next = time.Now().Add(s.k.opts.Every)
	if err := s.k.follow(ctx); err != nil {
		return err
	}
	if err := s.k.handOver(); err != nil {
		return err
	}
	if err := s.k.compareAll(ctx); err != nil {
		return err
	}
	s.k.showNewest()
	s.k.log.Info("this process signs the checkpoints of the store", "epoch", epoch, "appends", s.k.tree.Size())
	return nil
}

// resign lets another process sign.
func (s *shared) resign(ctx context.Context) error {
	epoch := s.epoch.Swap(0)
	if epoch == 0 {
		return nil
	}
	return s.tables.Resign(ctx, epoch)
}

// leads asks the tables whether this process is still the one that signs.
func (s *shared) leads(ctx context.Context) bool {
	epoch, err := s.tables.Lead(ctx)
	if err != nil {
		return false // keep the epoch: the tables did not say that another process signs
	}
	if epoch == 0 || epoch != s.epoch.Load() {
		s.epoch.Store(0)
		s.unsure = true
		return false
	}
	return true
}

// run looks and signs until ctx ends.
func (s *shared) run(ctx context.Context, tick <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		err := s.step(ctx)
		if ctx.Err() != nil {
			return
		}
		s.k.trouble.tell(s.k.log, err)
	}
}

func (s *shared) step(ctx context.Context) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.unsure {
		if err := s.reload(ctx); err != nil {
			return err
		}
	}
	if time.Since(s.looked) >= lookTime {
		s.looked = time.Now()
		if err := s.look(ctx); err != nil {
			return err
		}
	}
	if s.epoch.Load() == 0 {
		return nil
	}
	err := s.k.goOn(ctx, &s.next)
	switch {
	case errors.Is(err, ErrNotSigner):
		s.k.log.Warn("another process signs the checkpoints of the store now", "was", err)
		s.epoch.Store(0)
		s.unsure = true
		return nil
	case err != nil:
		s.unsure = true
	}
	return err
}

// look reads the notes of other processes, and begins to sign if no process does.
func (s *shared) look(ctx context.Context) error {
	end, err := s.tables.End(ctx)
	if err != nil {
		return err
	}
	if int64(end) < s.k.kept() { // the database has fewer appends than were signed
		return s.reload(ctx)
	}
	s.end.Store(end)
	if s.k.first == "" {
		if err := s.load(ctx); err != nil || s.k.first == "" {
			return err
		}
	}
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	if s.epoch.Load() != 0 || !s.signs || s.k.store.Stats().Frozen != "" || s.k.mayHandOver() != nil {
		return nil
	}
	err = s.elect(ctx)
	if err != nil && s.epoch.Load() != 0 {
		s.unsure = true
		err = errors.Join(err, s.resign(ctx))
	}
	return err
}

// Refresh makes this process know every checkpoint that another process has answered with. Otherwise a client that asks
// two processes in turn could take the second for a store that was rolled back. It asks the tables, and waits only if they
// have a new note.
func (k *Keeper) Refresh(ctx context.Context) error {
	if k.shared == nil {
		return nil
	}
	return k.shared.refresh(ctx)
}

func (s *shared) refresh(ctx context.Context) error {
	got, err := s.tables.Notes(ctx, s.newestN.Load()+1, 1)
	if err != nil || len(got) == 0 {
		return err
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	switch {
	case s.k.first == "":
		return s.load(ctx)
	case s.unsure:
		return s.reload(ctx)
	}
	return s.catchUp(ctx)
}

func (s *shared) known() uint64 { return s.end.Load() }
func (s *shared) mayShow() bool { return s.epoch.Load() != 0 }
func (s *shared) answers()      { s.newestN.Store(s.last.Number) }
func (s *shared) afterAccept()  { s.turn.Unlock() }

// catchUp reads the notes that other processes kept since.
func (s *shared) catchUp(ctx context.Context) error {
	got, err := s.tables.Notes(ctx, max(s.last.Number, 1), notesPage)
	if err != nil {
		return err
	}
	if s.last.Number > 0 {
		if len(got) == 0 || got[0].Number != s.last.Number || !bytes.Equal(got[0].Text, s.last.Text) {
			return s.reload(ctx) // the database has lost what this process knows
		}
		got = got[1:]
	}
	for _, n := range got {
		if n.Kind != KindAcceptance && s.epoch.Swap(0) != 0 {
			s.k.log.Warn("another process signs the checkpoints of the store now")
		}
		if err := s.takeNote(ctx, n); err != nil {
			return err // n is read again: until it is taken, this process knows less than another one has shown
		}
		s.last = n
		s.newestN.Store(n.Number) // last: refresh does not wait for turn once it sees this number
	}
	return nil
}

// takeNote takes a note of another process.
func (s *shared) takeNote(ctx context.Context, n Note) error {
	if n.Kind != KindCheckpoint {
		before := s.others
		s.others = append(slices.Clip(before), n.Text)
		err := s.k.readKept()
		if err != nil {
			s.others = before
		}
		return err
	}
	agrees, err := s.k.compareKept(ctx, n.Text)
	if err != nil {
		return err
	}
	s.newest = n.Text
	if c, err := checkpoint.Unverified(n.Text); err == nil && agrees {
		s.k.adopt(n.Text, c.Size)
	}
	return nil
}

// reach extends the tree to the size of a checkpoint, or to the end of the order if that comes first.
func (s *shared) reach(ctx context.Context, size int64) error {
	if size <= s.k.tree.Size() {
		return nil
	}
	end, err := s.tables.End(ctx)
	if err != nil {
		return err
	}
	return s.k.followTo(ctx, min(end, uint64(size)))
}

// leaves yields the leaves after an index, up to end, or to the end of the order if that comes first.
func (s *shared) leaves(ctx context.Context, after, end uint64) iter.Seq2[tree.Leaf, error] {
	return func(yield func(tree.Leaf, error) bool) {
		for after < end {
			page, err := s.tables.Leaves(ctx, after, int(min(end-after, leavesPage)))
			if err != nil {
				yield(tree.Leaf{}, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, l := range page {
				if !yield(tree.Leaf(l), nil) {
					return
				}
				after = l.Index
			}
		}
	}
}

// nextOf returns the first leaf of a trace from an index on. It waits a while for one, because an append gets its
// number in the order only a moment later.
func (s *shared) nextOf(ctx context.Context, id tga.ID, from uint64) (tree.Leaf, error) {
	for until := time.Now().Add(numberTime); ; {
		l, ok, err := s.tables.NextOf(ctx, id, max(from, 1))
		if err != nil || ok {
			return tree.Leaf(l), err
		}
		if time.Now().After(until) {
			return tree.Leaf{}, tga.Errorf(tga.StateSequenceGap, "the order has no leaf of the trace from %d on", from).In(id)
		}
		select {
		case <-ctx.Done():
			return tree.Leaf{}, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// grown is called after each leaf. It limits the tiles in memory: it keeps them in the tables, or drops them.
func (s *shared) grown(ctx context.Context) error {
	t := s.k.tree.(*swapped).at.Load()
	fresh := t.Fresh()
	if len(fresh) < mostFresh {
		return nil
	}
	epoch := s.epoch.Load()
	if epoch != 0 && s.k.store.Stats().Frozen == "" {
		l, _ := t.Last()
		if err := s.tables.Keep(ctx, Keeping{Epoch: epoch, Size: t.Size(), Leaf: l, Tiles: fresh}); err != nil {
			return err
		}
	}
	t.Kept(len(fresh))
	return nil
}

// close makes a last checkpoint if this process signs, and then lets another process sign.
func (s *shared) close(ctx context.Context) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.epoch.Load() == 0 {
		return nil
	}
	if end, err := s.tables.End(ctx); err == nil {
		s.end.Store(end)
	}
	err := s.k.finish(ctx)
	if errors.Is(err, ErrNotSigner) { // another process signs already
		s.epoch.Store(0)
		return nil
	}
	return errors.Join(err, s.resign(ctx))
}
