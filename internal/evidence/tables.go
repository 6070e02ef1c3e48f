package evidence

import (
	"context"
	"errors"
	"iter"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/schemas/tga"
)

// grove is the tree of a store: in files beside the log ([tree.Tree]), or in tables ([tree.Tiled]).
type grove interface {
	Size() int64
	Append(l *tree.Leaf) error
	Mark() error
	Close() error
	Head(size int64) (tlog.Hash, error)
	Prove(index uint64, size int64) (tlog.RecordProof, error)
	ProvePrefix(old, size int64) (tlog.TreeProof, error)
	Tile(tile tlog.Tile) ([]byte, error)
}

// notes are what was signed for a store: checkpoints, hand-overs, accepted losses. They lie in a file beside the log
// ([checkpoint.File]), or in a table.
type notes interface {
	// Append keeps a note. It is durable when Append returns.
	Append(raw []byte) error
	// All yields the kept notes, oldest first. Old checkpoints may be left out.
	All() iter.Seq2[[]byte, error]
	// Newest returns the newest checkpoint, nil where there is none.
	Newest() []byte
	Close() error
}

// sharing is what a keeper asks of [shared]. It is an interface so that a program which opens no such store does not link it.
type sharing interface {
	run(ctx context.Context, tick <-chan time.Time)
	close(ctx context.Context) error
	refresh(ctx context.Context) error
	leaves(ctx context.Context, after, end uint64) iter.Seq2[tree.Leaf, error]
	nextOf(ctx context.Context, id tga.ID, from uint64) (tree.Leaf, error)
	known() uint64 // end of the order
	reach(ctx context.Context, size int64) error
	grown(ctx context.Context) error // is called for each leaf
	leads(ctx context.Context) bool
	mayShow() bool
	has(ctx context.Context, size int64) bool
	doubt(ctx context.Context, c checkpoint.Checkpoint, why string) (string, error)
	answers() // what was kept is answered with
	beforeAccept() error
	afterAccept()
}

// Tables are where the evidence of a store lies that several processes have open. What is there is never changed.
type Tables interface {
	// Lead asks that this process be the one that signs, and returns the epoch under which it does; 0 where another
	// process signs, or may still do so.
	Lead(ctx context.Context) (epoch int64, err error)
	// Resign lets another one sign at once.
	Resign(ctx context.Context, epoch int64) error
	// Keep keeps tiles and a note, all or nothing, and returns when they are as durable as the log. [ErrNotSigner],
	// [ErrOtherNote] and [ErrOtherOrder] say that nothing was kept; after another error this is not known.
	Keep(ctx context.Context, k Keeping) error
	// Standing returns the newest checkpoint, and all other notes.
	Standing(ctx context.Context) (Standing, error)
	// Notes returns notes from a number on, that one too: most of them, or those that there are.
	Notes(ctx context.Context, from int64, most int) ([]Note, error)
	// Whole and Tiles are those of [tree.Tiles].
	Whole(ctx context.Context) ([]int64, error)
	Tiles(ctx context.Context, level int, first int64, most int) ([][]byte, error)
	// End is the number of the last leaf of the order, asked for now.
	End(ctx context.Context) (uint64, error)
	// Leaves returns leaves of the order behind an index: most of them, or those that there are.
	Leaves(ctx context.Context, after uint64, most int) ([]engine.Leaf, error)
	// NextOf returns the first leaf with entries or notes of a trace, from an index on; ok is false where there is none.
	NextOf(ctx context.Context, trace tga.ID, from uint64) (l engine.Leaf, ok bool, err error)
}

// What [Tables.Keep] refuses.
var (
	ErrNotSigner  = errors.New("another process signs for the store, or may do so")
	ErrOtherNote  = errors.New("another note was kept since, or the note does not go on from the newest one")
	ErrOtherOrder = errors.New("the order has not what the note covers, or a tile is kept with other hashes")
)

// What a note in tables is.
const (
	KindCheckpoint = 1
	KindHandOver   = 2
	KindAcceptance = 3 // it needs no epoch: a person may say it to any process
)

// Note is a signed note in the tables. Numbers count from 1.
type Note struct {
	Number int64
	Kind   int
	Text   []byte
}

// Standing is what is kept of a store as a whole.
type Standing struct {
	Key    string // public, that signed first; nobody trusts it
	Newest Note   // checkpoint; Number is 0 where there is none
	Others []Note // in order
}

// Keeping is what [Tables.Keep] keeps.
type Keeping struct {
	Epoch int64
	After int64     // number of the newest note that the caller knows
	Key   string    // public, that signed first
	Size  int64     // of the tree that the note and the tiles are of
	Leaf  tree.Leaf // the last of these leaves
	Kind  int
	Note  []byte // nil is none
	Tiles []tree.FullTile
}
