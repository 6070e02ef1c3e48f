package state

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Limits of a transaction. Exceeding a limit of a key is VALIDATION_ERROR, exceeding another one
// LIMIT_EXCEEDED.
const (
	MaxKey   = 255      // bytes of a key, and of a scope's id; the least is 1
	MaxValue = 1 << 20  // bytes of a value's canonical form
	MaxKeys  = 10_000   // keys of one transaction: those it wrote and, at levels with repeatable reads, those it read
	MaxBytes = 64 << 20 // bytes of one transaction's operations, and separately of the values that it replaces
)

// opCost is the bytes that an operation counts in addition to its key and its value.
const opCost = 64

// Options configure a Space. The zero value is ready for use.
type Options struct {
	// Clock tells when values expire; nil is time.Now.
	Clock func() time.Time
	// NewID makes the ids of transactions, UUIDv7; nil makes real ones.
	NewID func() tga.ID
}

// Space is the state of all sessions and agents in a store. A store must have only one Space: a
// commit of a second one is detected and refused. Its methods may be called from any number of
// goroutines.
type Space struct {
	store runtime.Store
	opts  Options
	slot  func(key string) uint64 // item number of the list that has a key
	pick  func(n int) int         // a random number below n
	sick  atomic.Pointer[tga.Error]

	mu     sync.Mutex
	scopes map[tga.ID]*scope // scopes with open transactions or collections
}

// Open returns the state in a store. It reads nothing: a scope is read when a transaction of it
// begins.
func Open(store runtime.Store, o Options) *Space {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.NewID == nil {
		// NewV7 fails only if the system has no randomness, and then nothing here could go on.
		o.NewID = func() tga.ID { return tga.ID(uuid.Must(uuid.NewV7())) }
	}
	return &Space{store: store, opts: o, slot: keyspace.ListItem, pick: rand.IntN, scopes: map[tga.ID]*scope{}}
}

func (s *Space) now() tga.Millis { return tga.MillisOf(s.opts.Clock()) }

// healthy returns an error after a commit whose outcome is unknown.
func (s *Space) healthy() error {
	if cause := s.sick.Load(); cause != nil {
		return tga.Errorf(tga.StoreUnavailable, "state: the fate of a commit is unknown until the store is opened again: %w", cause)
	}
	return nil
}

// poison makes every later operation of the space fail, and returns their error.
func (s *Space) poison(cause error) error {
	s.sick.CompareAndSwap(nil, tga.Errorf(tga.StoreUnavailable, "%w", cause))
	return s.healthy()
}

// scope is one session's or agent's state while transactions of it are open.
type scope struct {
	space *Space
	name  Scope
	id    tga.ID // of its stream
	users int    // open transactions and collections; guarded by space.mu

	// gate is held by a commit from its checks to its publication, and briefly by whoever takes
	// the newest version to read. So a version that is not pinned has no reader, and a commit may
	// drop it.
	gate   chan struct{}
	head   head // item 0 in the store; guarded by gate
	loaded bool // guarded by gate

	mu    sync.Mutex // guards the fields below and the fields of its transactions
	pins  map[uint64]int
	open  map[*txn]bool
	stamp uint64 // orders the writes of its transactions
}

func (s *Space) enter(name Scope) *scope {
	c := &scope{space: s, name: name, gate: make(chan struct{}, 1), pins: map[uint64]int{}, open: map[*txn]bool{}}
	if name.Mode == None {
		c.loaded = true // there is nothing to load, and nobody shares it
		return c
	}
	c.id = keyspace.ScopeStream(string(name.Mode), name.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.scopes[c.id]; old != nil {
		c = old
	}
	s.scopes[c.id] = c
	c.users++
	return c
}

func (s *Space) leave(c *scope) {
	if c.name.Mode == None {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.users--; c.users == 0 {
		delete(s.scopes, c.id)
	}
}

// lock takes the gate.
func (c *scope) lock(ctx context.Context) error {
	select {
	case c.gate <- struct{}{}:
	default:
		select {
		case c.gate <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := c.space.healthy(); err != nil {
		c.unlock()
		return err
	}
	if c.loaded {
		return nil
	}
	head, err := c.readHead(ctx)
	if err != nil {
		c.unlock()
		return err
	}
	c.head, c.loaded = head, true
	return nil
}

func (c *scope) unlock() { <-c.gate }

// pin returns the newest version, which is kept for reading until unpin.
func (c *scope) pin(ctx context.Context) (uint64, error) {
	if err := c.lock(ctx); err != nil {
		return 0, err
	}
	defer c.unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pins[c.head.Version]++
	return c.head.Version, nil
}

func (c *scope) unpin(version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(version)
}

// release is unpin for a caller that holds mu.
func (c *scope) release(version uint64) {
	if c.pins[version]--; c.pins[version] == 0 {
		delete(c.pins, version)
	}
}

// pinned returns the versions that somebody reads. If apart is set, it leaves out one reader of
// version but.
func (c *scope) pinned(but uint64, apart bool) []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []uint64
	for v, n := range c.pins {
		if v != but || !apart || n > 1 {
			out = append(out, v)
		}
	}
	return out
}

// Begin begins a transaction. All its reads use ctx until it ends. Unknown modes and levels are
// VALIDATION_ERROR; the empty ones are Session and Serializable.
func (s *Space) Begin(ctx context.Context, name Scope, level Isolation) (*Tx, error) {
	level = cmp.Or(level, Serializable)
	name, err := name.check()
	if err != nil {
		return nil, err
	}
	if err := level.Check(); err != nil {
		return nil, err
	}
	if err := s.healthy(); err != nil {
		return nil, err
	}
	c := s.enter(name)
	version, err := c.pin(ctx)
	if err != nil {
		s.leave(c)
		return nil, err
	}
	t := &txn{
		ctx: ctx, scope: c, level: level, id: s.opts.NewID(), began: s.now(), status: Pending, snapshot: version,
		reads: map[string]seen{}, writes: map[string]*write{}, keys: map[string]bool{},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[t] = true
	if !level.snapshot() {
		c.release(version) // each of its reads takes the newest version
	}
	return &Tx{txn: t}, nil
}

// check returns the scope with its defaults, or VALIDATION_ERROR.
func (n Scope) check() (Scope, error) {
	n.Mode = cmp.Or(n.Mode, Session)
	if err := n.Mode.Check(); err != nil {
		return n, err
	}
	if n.Mode == None {
		return n, nil
	}
	return n, checkName("id of a scope", n.ID)
}
