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
	"github.com/tgad/tgad/internal/diskfs"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Store has the methods of an open store that a keeper needs.
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
	// Former is the key that signed before. If it signed the kept checkpoints, it hands over to
	// Signer. nil is none.
	Former *checkpoint.Signer
	Places []checkpoint.Target

	// Witnesses are the keys whose cosignatures count. If fewer than Cosigned of them signed a
	// checkpoint, that is logged.
	Witnesses []note.Verifier
	Cosigned  int

	Every  time.Duration // between checkpoints of a store that grows; 10 s
	Leaves int64         // appends after which a checkpoint is made at once; 4096
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.FS = cmp.Or(o.FS, diskfs.OS())
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

// How often a long follow logs its progress, and after how many leaves it looks at the clock.
const (
	progressTime   = 5 * time.Second
	progressLeaves = 1 << 14
)

// followTime is how often the keeper reads the new leaves. It is short so that a busy store still has
// them in memory, see [engine.DB.Follow]. In the log they are between the bodies, and to read them
// there means to read the bodies too.
const followTime = 200 * time.Millisecond

// placeTime limits one request to a place outside.
const placeTime = 10 * time.Second

// Keeper keeps the evidence of one store. Its methods may be called concurrently, but for Run and
// Close, which one goroutine calls, Close when Run has ended.
type Keeper struct {
	opts   Options
	store  Store
	log    *slog.Logger
	tree   grove
	file   notes
	first  string  // public key that signed first
	shared sharing // nil for a store that only this process has open
	places []*place

	dir string // of the store; "" for a store that several processes have open

	// Only the goroutine that makes checkpoints and hands them out uses these.
	lacking bool // the newest checkpoint lacks cosignatures
	trouble trouble

	following sync.Mutex // held while leaves are appended to the tree

	mu       sync.Mutex
	keys     *checkpoint.Keys
	over     [][]byte      // hand-overs, oldest first
	accepted []finding     // losses that a person accepted
	findings []finding     // why the store was frozen
	newest   []byte        // newest checkpoint, nil if there is none
	size     int64         // of the newest checkpoint
	at       time.Time     // when this process made the newest checkpoint
	seen     string        // size and head of the newest checkpoint, for a header
	grown    chan struct{} // closed when there is a newer checkpoint
}

// Open opens the evidence of a store that has just been opened; dir is the store's directory. It
// extends the tree to the end of the log, and compares it with the checkpoints that were signed
// before: the newest one that the store kept, and those that places outside have. If the tree
// contradicts one of them, the store is frozen before Open returns.
//
// STATE_CHECKSUM_MISMATCH: the kept checkpoints are damaged. PERMISSION_DENIED: they were signed by
// a key that is not the one of the options and did not hand over to it. VALIDATION_ERROR: no checkpoint
// can have the origin.
func Open(ctx context.Context, store Store, dir string, o Options) (*Keeper, error) {
	o = o.withDefaults()
	if err := checkpoint.CheckOrigin(o.Origin); err != nil {
		return nil, err
	}
	k := &Keeper{opts: o, store: store, log: o.Logger, dir: dir, grown: make(chan struct{})}
	for _, t := range o.Places {
		k.places = append(k.places, &place{Target: t, log: o.Logger})
	}
	t, err := k.openTree(ctx)
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

// openTree opens the tree of a store in a directory, up to its mark. Of a leaf that the log does not have, the hash is zero,
// which no tree holds. Then the tree is made again, and [Keeper.compareAll] finds what is missing.
func (k *Keeper) openTree(ctx context.Context) (*tree.Tree, error) {
	return tree.Open(k.opts.FS, k.dir, k.store.Stats().StoreID, func(number int64) (tlog.Hash, error) {
		index := uint64(number) + 1
		if index > k.store.Cursor() {
			return tlog.Hash{}, nil
		}
		l, err := k.leaf(ctx, index)
		return l.Hash(), err
	})
}

// start compares the store with the checkpoints that were signed for it. dir is where its evidence is kept.
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

// showNewest makes [Keeper.Seen] return the newest checkpoint, unless the tree contradicts it or
// another one.
func (k *Keeper) showNewest() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c, err := checkpoint.Unverified(k.newest); err == nil && len(k.findings) == 0 && k.size == c.Size {
		k.seen = Seen{c.Size, c.Head}.String()
	}
}

func (k *Keeper) leaf(ctx context.Context, index uint64) (tree.Leaf, error) {
	for l, err := range k.leaves(ctx, index-1, index) {
		return l, err
	}
	return tree.Leaf{}, tga.Errorf(tga.StoreUnavailable, "no leaf %d", index)
}

// leaves yields the leaves after an index, up to end. The log must have end.
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

// end is the newest index of the log that this process knows.
func (k *Keeper) end() uint64 {
	if k.shared != nil {
		return max(k.store.Cursor(), k.shared.known())
	}
	return k.store.Cursor()
}

// follow extends the tree to the end of the log.
func (k *Keeper) follow(ctx context.Context) error { return k.followTo(ctx, k.end()) }

func (k *Keeper) followTo(ctx context.Context, end uint64) error {
	k.following.Lock()
	defer k.following.Unlock()
	if t, inFiles := k.tree.(*tree.Tree); inFiles && t.Failed() != nil {
		return k.again(ctx, t, end)
	}
	return k.grow(ctx, k.tree, end)
}

// again opens a tree whose files could not be written, for example because the disk was full, and extends it to the end of
// the log from its mark on. Until that is done, proofs come from what could be read before.
func (k *Keeper) again(ctx context.Context, t *tree.Tree, end uint64) error {
	fresh, err := k.openTree(ctx)
	if err != nil {
		return err
	}
	if err := k.grow(ctx, fresh, max(end, uint64(t.Size()))); err != nil {
		return errors.Join(err, fresh.Close())
	}
	t.Take(fresh)
	return nil
}

// grow extends a tree to an index of the log.
func (k *Keeper) grow(ctx context.Context, t grove, end uint64) error {
	if uint64(t.Size()) >= end {
		return nil
	}
	said := time.Now()
	for l, err := range k.leaves(ctx, uint64(t.Size()), end) {
		if err != nil {
			return err
		}
		if err := t.Append(&l); err != nil {
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

// Run follows the log and makes checkpoints until ctx ends or the store stops. After an error it tries again, after as long
// as there is between checkpoints: a disk that was full may have room again.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(min(k.opts.Every, followTime))
	defer tick.Stop()
	if k.shared != nil {
		k.shared.run(ctx, tick.C)
		return
	}
	next, again := time.Now().Add(k.opts.Every), time.Time{}
	for k.store.Stats().Poisoned == "" {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if time.Now().Before(again) {
			continue
		}
		err := k.goOn(ctx, &next)
		if ctx.Err() != nil {
			return
		}
		if k.trouble.tell(k.log, err); err != nil {
			again = time.Now().Add(k.opts.Every)
		}
	}
}

// trouble is the error that was logged last, "" while checkpoints are made.
type trouble string

// tell logs why no checkpoints are made, when that changes.
func (t *trouble) tell(log *slog.Logger, err error) {
	text := trouble("")
	if err != nil {
		text = trouble(err.Error())
	}
	switch {
	case text == *t:
	case text == "":
		log.Info("checkpoints are made again")
	default:
		log.Error("checkpoints are not made at the moment, will retry", "error", string(text))
	}
	*t = text
}

// kept is the number of appends that the newest checkpoint covers.
func (k *Keeper) kept() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.size
}

// Signs reports whether a process signs checkpoints of the store: this one, or another one that has it open. It is
// false for a nil keeper.
func (k *Keeper) Signs() bool {
	if k == nil {
		return false
	}
	first, _ := k.Keys()
	return first != ""
}

// Signed returns how many appends the newest checkpoint covers.
func (k *Keeper) Signed() int64 { return k.kept() }

// SignedAt returns when this process made its newest checkpoint, zero if it has made none.
func (k *Keeper) SignedAt() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at
}

// checkpoint signs a checkpoint of the current tree, keeps it, and hands it to the places outside.
func (k *Keeper) checkpoint(ctx context.Context) error {
	if k.store.Stats().Frozen != "" {
		return nil // a frozen store may lack appends, so nothing is signed for it
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
		// The key may be in another program, which may answer again later.
		k.log.Error("no checkpoint is signed", "error", err)
		return nil
	}
	if err := k.keep(raw, c.Size); err != nil {
		return err
	}
	return k.handOut(ctx, raw, c.Size)
}

// now is the unsigned checkpoint of the current tree.
func (k *Keeper) now() (c checkpoint.Checkpoint, err error) {
	c = checkpoint.Checkpoint{Origin: k.opts.Origin, Size: k.tree.Size()}
	c.Head, err = k.tree.Head(c.Size)
	return c, err
}

// sign returns a signed checkpoint of the current tree, and does not keep it.
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

// adopt makes a kept checkpoint the newest one.
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

// Close makes a last checkpoint of all appends, hands it to the places that lack it, and closes the files.
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

// Newest returns the newest checkpoint as it was signed, nil if there is none yet. grown is closed
// when there is a newer one.
func (k *Keeper) Newest() (raw []byte, grown <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.newest, k.grown
}

// Seen returns the size and head of the newest checkpoint, in the form that [ParseSeen] reads; "" if
// there is none yet.
func (k *Keeper) Seen() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen
}
