package crashtest

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// EventKind says what happened in an [Event].
type EventKind uint8

// Kinds of events.
const (
	Opened       EventKind = 1 + iota // a process opened the store
	Submitted                         // an append was asked for
	Acknowledged                      // an append returned nil
	Sealed                            // a checkpoint was handed out
	Sent                              // a tool server received a call
	Acted                             // a tool server's effect happened
	Ended                             // a durable effect was seen when the store was opened
	Invoked                           // a caller asked
	Returned                          // a caller was answered
	Granted                           // a lease was granted
	Refused                           // an append was refused: none of it is written
	Unanswered                        // a send did not reach its server
	Journaled                         // an append of records of turns was asked for
	Kept                              // an append of records of turns returned nil
	Questioned                        // a model's server received a question
	Told                              // a caller was told how its message ended
	Settled                           // a person said of an invocation's call what a crash hid
)

// Event is one line of the journal that is kept outside the process under test.
type Event struct {
	Kind  EventKind
	Trace tga.ID
	Key   string // idempotency key
	Tool  string

	Call    runtime.Call   // Sent, Acted
	Batch   chain.Batch    // Submitted
	Entries []tga.LogEntry // Acknowledged
	Notes   []tga.Note     // Acknowledged
	Seal    tga.Checkpoint // Sealed
	Args    string         // Invoked, Returned
	Caller  int            // Invoked, Returned
	Value   []byte         // Returned
	Code    tga.Code       // Returned

	Queued  bool        // Submitted: by the one goroutine that appends to the trace, in this order
	Batched int         // Refused: the place of its Submitted
	Epoch   chain.Epoch // Granted, Acknowledged
	At      tga.Millis  // Sent, Acted
	Remote  bool        // Sent by a remote executor
}

// Point is a moment at which a crash can be made: before a file-system operation, or
// around a send.
type Point struct {
	N    int    // counted from 1 in its process
	Op   string // what would happen next
	Path string // its file, "" where it has none
}

// World is everything that outlives a process.
type World struct {
	FS   *crashmem.FS
	Seed uint64

	mu     sync.Mutex
	events []Event
	points int
	passed int // points, of all processes
	now    tga.Millis
	// at is called at each point with the world's lock held, so everything that it clones
	// is of one moment.
	at func(Point)
	// fault decides about each file-system operation, nil for none.
	fault func(op Op) Fault
	held  chan struct{} // syncs of logs wait until it is closed, nil for not
	pages pages
}

// start is the first time of a world's clock.
const start tga.Millis = 1768503600000

// NewWorld returns a world with an empty disk.
func NewWorld(seed uint64) *World {
	return &World{FS: crashmem.New(), Seed: seed, now: start}
}

// Clock is the time in the world. It moves by [World.Advance] alone.
func (w *World) Clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now.Time()
}

// Advance moves the clock, back too.
func (w *World) Advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now += tga.Millis(d.Milliseconds())
}

// OnPoint sets what is called at each point.
func (w *World) OnPoint(f func(Point)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at, w.points = f, 0
}

// OnOp sets what decides about each file-system operation.
func (w *World) OnOp(f func(Op) Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault, w.points = f, 0
}

// hold keeps syncs of logs from beginning until it is released.
func (w *World) hold() (release func()) {
	held := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = held
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.held = nil
		close(held)
	})
}

// awaitHold returns when no sync of a log is held.
func (w *World) awaitHold() {
	w.mu.Lock()
	held := w.held
	w.mu.Unlock()
	if held != nil {
		<-held
	}
}

// Points returns how many points were passed since OnPoint or OnOp.
func (w *World) Points() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.points
}

// point counts a point and calls at. The caller holds the lock.
func (w *World) point(op, path string) {
	w.points++
	w.passed++
	if w.at != nil {
		w.at(Point{w.points, op, path})
	}
}

// log writes an event and returns its place.
func (w *World) log(e Event) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
	return len(w.events) - 1
}

// Journal returns what happened so far.
func (w *World) Journal() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clip(w.events)
}

// Image is a world at a crash.
type Image struct {
	FS     *crashmem.FS
	Events []Event
	Now    tga.Millis
	Seed   uint64
	Loss   int     // percent of the unsynced blocks and names that are lost
	Path   []Point // the crashes that led here, oldest first
}

// Losses are the percentages of unsynced data that a crash may lose.
var Losses = []int{0, 30, 70, 100}

// Snapshot takes an image. Call it from a function given to [World.OnPoint]: the lock is
// then held, so no send, effect or acknowledgement comes between disk and journal.
func (w *World) Snapshot(p Point, loss int, path []Point) Image {
	cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: 100 - loss}
	if loss < 100 {
		cfg.RNG = rand.New(rand.NewPCG(w.Seed, uint64(p.N)<<8|uint64(loss)))
	}
	disk := w.FS.CrashClone(cfg)
	if loss > 0 {
		w.pages.lose(disk)
	}
	return Image{
		FS: disk, Events: slices.Clip(w.events), Now: w.now,
		Seed: w.Seed, Loss: loss, Path: append(slices.Clone(path), p),
	}
}

// Crash takes an image now.
func (w *World) Crash(loss int) Image {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Snapshot(Point{w.points, "end", ""}, loss, nil)
}

// World returns a world that begins at the crash, a second later. The image can be
// used again: its file system is cloned.
func (img Image) World() *World { return img.later(time.Second) }

// later is World after some time.
func (img Image) later(d time.Duration) *World {
	w := NewWorld(img.Seed*31 + uint64(len(img.Path)) + 1)
	w.FS = img.FS.CrashClone(vfs.CrashCloneCfg{})
	w.events, w.now = img.Events, img.Now+tga.Millis(d.Milliseconds())
	return w
}

// window is how long the server of a dedupe_key tool honours a key.
const window = time.Hour

// licences are those that the names of tools stand for, see policy.
var licences = map[string]ledger.Licence{
	"park":        {Kind: ledger.Park},
	"probe":       {Kind: ledger.Probe}, // nobody can be asked
	probed:        {Kind: ledger.Probe}, // the server can be: see [World.trust]
	"dedupe_key":  {Kind: ledger.DedupeKey, Window: window},
	"dedupe_args": {Kind: ledger.DedupeArgs},
	"read_only":   {Kind: ledger.ReadOnly},
}
