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

// grove is the Merkle tree of a store: in files beside the log ([tree.Tree]), or in tables ([tree.Tiled]).
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

// notes are the signed notes of a store: checkpoints, hand-overs, accepted losses. They are in a file beside the log
// ([checkpoint.File]), or in a table.
type notes interface {
	// Append keeps a note. It is durable when Append returns.
	Append(raw []byte) error
	// All yields the kept notes, oldest first. Old checkpoints may be left out.
	All() iter.Seq2[[]byte, error]
	// Newest returns the newest checkpoint, nil if there is none.
	Newest() []byte
	Close() error
}

// sharing has the methods of [shared] that a keeper calls. It is an interface so that a program which opens no such store
// does not link shared.
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
	answers() // is called when answers have the note that was kept last
	beforeAccept() error
	afterAccept()
}

// Tables have the evidence of a store that several processes have open. Rows are added and never changed.
type Tables interface {
	// Lead asks that this process be the one that signs, and returns the epoch under which it signs; 0 if another
	// process signs, or may still sign.
	Lead(ctx context.Context) (epoch int64, err error)
	// Resign lets another process sign at once.
	Resign(ctx context.Context, epoch int64) error
	// Keep keeps tiles and a note, all or nothing, and returns when they are as durable as the log. After
	// [ErrNotSigner], [ErrOtherNote] or [ErrOtherOrder] nothing was kept. After another error that is not known.
	Keep(ctx context.Context, k Keeping) error
	// Standing returns the newest checkpoint, and all notes that are no checkpoints.
	Standing(ctx context.Context) (Standing, error)
	// Notes returns at most most notes, from a number on and with it.
	Notes(ctx context.Context, from int64, most int) ([]Note, error)
	// Whole and Tiles are those of [tree.Tiles].
	Whole(ctx context.Context) ([]int64, error)
	Tiles(ctx context.Context, level int, first int64, most int) ([][]byte, error)
	// End reads the number of the last leaf of the order.
	End(ctx context.Context) (uint64, error)
	// Leaves returns at most most leaves of the order, those after an index.
	Leaves(ctx context.Context, after uint64, most int) ([]engine.Leaf, error)
	// NextOf returns the first leaf with entries or notes of a trace, from an index on; ok is false if there is none.
	NextOf(ctx context.Context, trace tga.ID, from uint64) (l engine.Leaf, ok bool, err error)
}

// Errors of [Tables.Keep] after which nothing was kept.
var (
	ErrNotSigner  = errors.New("another process signs for the store, or may do so")
	ErrOtherNote  = errors.New("another note was kept since, or the note does not go on from the newest one")
	ErrOtherOrder = errors.New("the order lacks leaves that the note covers, or a tile is kept with other hashes")
)

// The kinds of notes in tables.
const (
	KindCheckpoint = 1
	KindHandOver   = 2
	KindAcceptance = 3 // it needs no epoch: a person may accept a loss at any process
)

// Note is a signed note in the tables. Numbers count from 1.
type Note struct {
	Number int64
	Kind   int
	Text   []byte
}

// Standing is the state of the notes of a store.
type Standing struct {
	Key    string // public key that signed first; it need not be trusted
	Newest Note   // the newest checkpoint; Number is 0 if there is none
	Others []Note // the notes that are no checkpoints, in order
}

// Keeping is what [Tables.Keep] keeps.
type Keeping struct {
	Epoch int64
	After int64     // number of the newest note that the caller knows
	Key   string    // public key that signed first; only with the first note
	Size  int64     // leaves of the tree that the note and the tiles are of
	Leaf  tree.Leaf // the last leaf of that tree
	Kind  int
	Note  []byte // nil is none
	Tiles []tree.FullTile
}
