package workstate

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Tx is one transaction's view of a state: a tool call's, found with [FromContext]. It is
// usable until the tool returns.
type Tx struct {
	state    *State
	parent   *Tx // the transaction it runs inside of, or nil
	call     runtime.Call
	session  *Session
	branches map[string]Branch
	held     []string        // resources it has the turn at
	turns    map[string]turn // of those, for transactions inside this one
	boundary *boundary
	pre      map[string]*Node // of what is held
	began    time.Time

	keep  bool // the token, from the beginning
	token bool // it has the token

	mu     sync.Mutex // of merges by transactions inside this one, and the fields below
	replay Recording
	times  []time.Time
	rand   *rand.Rand
	stage  stage
	undo   *rollbackPoint // what was committed before, until the commit is durable
	merged *Node          // the root with the transaction's changes
	opened bool           // its record is in the store
	evict  []*boundary    // dropped with its commit
	doom   error          // why it can't commit
	inside int            // transactions in progress inside this one
}

// stage of a transaction. It only goes up.
type stage uint8

const (
	stageBegun   stage = iota
	stageMerged        // its changes are in memory; it has the token, if it is outermost
	stageSettled       // over
)

// rollbackPoint is a state's committed content in memory.
type rollbackPoint struct {
	session slicesOf
	nodes   map[string]*Node // of Branchers
}

type txKey struct{}

// FromContext returns the transaction that the caller runs in, nil outside of one.
func FromContext(ctx context.Context) *Tx {
	tx, _ := ctx.Value(txKey{}).(*Tx)
	return tx
}

// Session returns the transaction's branch of the session.
func (t *Tx) Session() *Session { return t.session }

// Call returns the call that the transaction is of; the zero Call for any other.
func (t *Tx) Call() runtime.Call { return t.call }

// Use returns the resource of type T as the transaction sees it: its own branch or, for a
// resource that calls take turns at, the resource itself. NOT_FOUND if there is no such
// resource. PERMISSION_DENIED if the transaction does not hold its turn.
func Use[T any](t *Tx) (T, error) {
	var none T
	name := nameOf(reflect.TypeFor[T]())
	if b, ok := t.branches[name]; ok {
		return b.(T), nil
	}
	r, ok := Get[T](t.state.resources)
	if !ok {
		return none, tga.Errorf(tga.NotFound, "the state has no resource of type %s", name)
	}
	if t.state.turns[name] != nil && !slices.Contains(t.held, name) {
		return none, tga.Errorf(tga.PermissionDenied, "%s on %s may not use %s", t.call.Tool, t.call.Server, name)
	}
	return r, nil
}

// Now returns the time and records it. In a replay it returns what was recorded.
func (t *Tx) Now() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.state.opts.Clock().UTC()
	if n := len(t.times); n < len(t.replay.Times) {
		now = t.replay.Times[n]
	}
	t.times = append(t.times, now)
	return now
}

// Rand returns the transaction's random source. It is seeded from the state's seed and
// the call's id, so a call that is sent again, or replayed, draws the same.
func (t *Tx) Rand() *rand.Rand { return t.rand }

type recordingKey struct{}

// WithRecording makes the next call under ctx see the clock and the random source as r
// has them. See [State.Recording].
func WithRecording(ctx context.Context, r Recording) context.Context {
	return context.WithValue(ctx, recordingKey{}, r)
}
