package evidence

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Store is what a keeper needs of an open store.
type Store interface {
	Stats() engine.Stats
	Cursor() uint64
	Follow(ctx context.Context, after uint64) iter.Seq2[engine.Leaf, error]
	Load(ctx context.Context, id tga.ID) (*chain.Trace, error)
	Entries(ctx context.Context, id tga.ID, after uint64) iter.Seq2[chain.Entry, error]
	Freeze(reason string) error
}

// Options say how the evidence of a store is kept. All but Signer may be zero.
type Options struct {
	FS     vfs.FS // nil is the operating system's
	Origin string // "" is the name of the key
	Signer checkpoint.Signer
	// Former is the key that signed before. Where the kept checkpoints are its own, it hands
	// over to Signer. nil is none.
	Former *checkpoint.Signer
	Places []checkpoint.Target

	// Witnesses are the keys of those whose signatures count; Cosigned is how many of them must
	// have signed a checkpoint, or it is logged as one that lacks them.
	Witnesses []note.Verifier
	Cosigned  int

	Every  time.Duration // between checkpoints of a store that grows; 10 s
	Leaves int64         // appends after which one is made at once; 4096
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.FS = cmp.Or(o.FS, vfs.Default)
	if o.Origin == "" && o.Signer.Signer != nil {
		o.Origin = o.Signer.Name()
	}
	if o.Every <= 0 {
		o.Every = 10 * time.Second
	}
	if o.Leaves <= 0 {
		o.Leaves = 4096
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// How often the progress of a long follow is said, and how many leaves are followed between two
// looks at the clock.
const (
	progressTime   = 5 * time.Second
	progressLeaves = 1 << 14
)

// followTime is how often the log is followed: so often that a busy store still has the leaves in
// memory, see [engine.DB.Follow]. In the log they lie among the bodies, and all of that is read.
const followTime = 200 * time.Millisecond

// placeTime bounds one question to a place outside.
const placeTime = 10 * time.Second

// Keeper keeps the evidence of one store. Its methods may be called concurrently, but for Run and
// Close, which one goroutine calls, Close when Run has ended.
type Keeper struct {
	opts   Options
	store  Store
	log    *slog.Logger
	tree   grove
	file   notes
	first  string  // public, of the key that signed first
	shared sharing // nil for a store that this process has alone
	places []*place

	lacking bool // the newest checkpoint lacks signatures of witnesses; the goroutine that hands out has it

	following sync.Mutex // of who appends to the tree

	mu       sync.Mutex
	keys     *checkpoint.Keys
	over     [][]byte      // hand-overs, oldest first
	accepted []finding     // losses that a person accepted
	findings []finding     // why the store was frozen
	newest   []byte        // checkpoint, nil where there is none
	size     int64         // of it
	at       time.Time     // when this process made it
	seen     string        // size and head of it, for a header
	grown    chan struct{} // closed when there is another
}

// Open takes the evidence of a store that has just been opened, in the directory dir of the store,
// to the end of its log, and compares it with what was signed before: the checkpoint that the store
// itself kept last, and those that places outside have. Where the tree contradicts one, the store
// is frozen before Open returns.
//
// STATE_CHECKSUM_MISMATCH: the kept checkpoints are damaged. PERMISSION_DENIED: they were signed by
// a key that is not the one of the options and did not hand over to it.
func Open(ctx context.Context, store Store, dir string, o Options) (*Keeper, error) {
	o = o.withDefaults()
	k := &Keeper{opts: o, store: store, log: o.Logger, grown: make(chan struct{})}
	for _, t := range o.Places {
		k.places = append(k.places, &place{Target: t, log: o.Logger})
	}
	t, err := tree.Open(o.FS, dir, store.Stats().StoreID, func(n int64) (tlog.Hash, error) { return k.leafHash(ctx, uint64(n)+1) })
	if err != nil {
		return nil, err
	}
	file, err := checkpoint.OpenFile(o.FS, o.FS.PathJoin(dir, tree.Dir))
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	k.tree, k.file = t, file
	if err = k.start(ctx, o.FS.PathJoin(dir, tree.Dir)); err != nil {
		return nil, errors.Join(err, k.tree.Close(), k.file.Close())
	}
	return k, nil
}

// start compares what the store is with what was signed for it. dir is where its evidence is kept.
func (k *Keeper) start(ctx context.Context, dir string) error {
	if err := k.follow(ctx); err != nil {
		return err
	}
	if err := k.readKept(); err != nil {
		return err
	}
	if err := k.handOver(); err != nil {
		return err
	}
	if err := k.writeKey(dir); err != nil {
		return err
	}
	if err := k.compareAll(ctx); err != nil {
		return err
	}
	k.showNewest()
	return nil
}

// showNewest has callers hear of the newest checkpoint, unless it is doubted.
func (k *Keeper) showNewest() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c, err := checkpoint.Unverified(k.newest); err == nil && len(k.findings) == 0 && k.size == c.Size {
		k.seen = Seen{c.Size, c.Head}.String()
	}
}

// leafHash is the hash of a leaf as the log has it now; of one that it does not have, no hash that
// a tree could hold: then the tree is made again, and [Keeper.compareAll] says what is missing.
func (k *Keeper) leafHash(ctx context.Context, index uint64) (tlog.Hash, error) {
	if index > k.store.Cursor() {
		return tlog.Hash{}, nil
	}
	l, err := k.leaf(ctx, index)
	return l.Hash(), err
}

func (k *Keeper) leaf(ctx context.Context, index uint64) (tree.Leaf, error) {
	for l, err := range k.leaves(ctx, index-1, index) {
		return l, err
	}
	return tree.Leaf{}, tga.Errorf(tga.StoreUnavailable, "no leaf %d", index)
}

// leaves yields the leaves behind an index, up to end, which is in the log.
func (k *Keeper) leaves(ctx context.Context, after, end uint64) iter.Seq2[tree.Leaf, error] {
	if k.shared != nil {
		return k.shared.leaves(ctx, after, end)
	}
	return func(yield func(tree.Leaf, error) bool) {
		if after >= end {
			return
		}
		for l, err := range k.store.Follow(ctx, after) {
			if !yield(tree.Leaf(l), err) || err != nil || l.Index >= end {
				return
			}
		}
	}
}

// end is how far the log is known to reach.
func (k *Keeper) end() uint64 {
	if k.shared != nil {
		return max(k.store.Cursor(), k.shared.known())
	}
	return k.store.Cursor()
}

// follow takes the tree to the end of the log.
func (k *Keeper) follow(ctx context.Context) error { return k.followTo(ctx, k.end()) }

func (k *Keeper) followTo(ctx context.Context, end uint64) error {
	k.following.Lock()
	defer k.following.Unlock()
	if uint64(k.tree.Size()) >= end {
		return nil
	}
	said := time.Now()
	for l, err := range k.leaves(ctx, uint64(k.tree.Size()), end) {
		if err != nil {
			return err
		}
		if err := k.tree.Append(&l); err != nil {
			return err
		}
		if k.shared != nil {
			if err := k.shared.grown(ctx); err != nil {
				return err
			}
		}
		if l.Index%progressLeaves == 0 && time.Since(said) > progressTime {
			said = time.Now()
			k.log.Info("the evidence is taken to the end of the log", "appends", l.Index, "of", end)
		}
	}
	return nil
}

// Run follows the log and makes checkpoints until ctx ends or the store stops.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(min(k.opts.Every, followTime))
	defer tick.Stop()
	if k.shared != nil {
		k.shared.run(ctx, tick.C)
		return
	}
	next := time.Now().Add(k.opts.Every)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := k.goOn(ctx, &next)
		if err != nil && ctx.Err() == nil {
			k.log.Error("the evidence of the store is not kept any more", "error", err)
			return
		}
	}
}

// kept is the size of the newest checkpoint.
func (k *Keeper) kept() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.size
}

// Signs reports whether somebody signs for the store: this process, or another one that has it open. A nil keeper
// knows of nobody.
func (k *Keeper) Signs() bool {
	if k == nil {
		return false
	}
	first, _ := k.Keys()
	return first != ""
}

// Signed returns how many appends the newest checkpoint covers.
func (k *Keeper) Signed() int64 { return k.kept() }

// SignedAt returns when this process made the newest checkpoint, zero where it has made none.
func (k *Keeper) SignedAt() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at
}

// checkpoint signs how far the tree has come, keeps that, and hands it to the places outside.
func (k *Keeper) checkpoint(ctx context.Context) error {
	if k.store.Stats().Frozen != "" {
		return nil // a store that is doubted vouches for nothing
	}
	c, err := k.now()
	if err == nil {
		err = k.tree.Mark()
	}
	if err != nil {
		return err
	}
	raw, err := c.Sign(k.opts.Signer)
	if err != nil {
		// Its key may be in another program, which comes back.
		k.log.Error("no checkpoint is signed", "error", err)
		return nil
	}
	if err := k.keep(raw, c.Size); err != nil {
		return err
	}
	return k.handOut(ctx, raw, c.Size)
}

// now is what a checkpoint says of the tree as it is.
func (k *Keeper) now() (c checkpoint.Checkpoint, err error) {
	c = checkpoint.Checkpoint{Origin: k.opts.Origin, Size: k.tree.Size()}
	c.Head, err = k.tree.Head(c.Size)
	return c, err
}

// sign returns a checkpoint that is kept nowhere.
func (k *Keeper) sign() ([]byte, error) {
	c, err := k.now()
	if err != nil {
		return nil, err
	}
	return c.Sign(k.opts.Signer)
}

func (k *Keeper) keep(raw []byte, size int64) error {
	if err := k.file.Append(raw); err != nil {
		return err
	}
	k.adopt(raw, size)
	if k.shared != nil {
		k.shared.answers()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at = time.Now()
	return nil
}

// adopt takes a checkpoint that was kept for the newest one.
func (k *Keeper) adopt(raw []byte, size int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.newest, k.size = raw, size
	if c, err := checkpoint.Unverified(raw); err == nil {
		k.seen = Seen{c.Size, c.Head}.String()
	}
	close(k.grown)
	k.grown = make(chan struct{})
}

// Close makes a last checkpoint of all that was appended, hands out what a place still lacks, and closes the files.
func (k *Keeper) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), placeTime)
	defer cancel()
	if k.shared != nil {
		return k.shared.close(ctx)
	}
	err := k.finish(ctx)
	if err == nil {
		err = k.tree.Mark()
	}
	return errors.Join(err, k.tree.Close(), k.file.Close())
}

// Newest returns the newest checkpoint, as it was signed, and a channel that is closed when there
// is another; nil where there is none yet.
func (k *Keeper) Newest() (raw []byte, grown <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.newest, k.grown
}

// Seen returns size and head of the newest checkpoint of this process, as [ParseSeen] reads them;
// "" where it has made none yet.
func (k *Keeper) Seen() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen
}
