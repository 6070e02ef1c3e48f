package turn

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// View is the state as one tool call sees it: the state of the turn, and the call's own changes.
// The call's changes become the turn's when the call has succeeded, and they are stored with the
// call's effect. A call that failed leaves nothing. A call whose effect a crash left on disk is
// not made again, and its changes are there.
//
// Calls that run at once see each other's changes only once the changing call has succeeded. A
// call is in conflict if it changes something and has read a key that another call has changed
// meanwhile (under a level other than serializable: only if it sets or deletes that very key).
// Then none of its changes is kept, and its result says so with STATE_CONFLICT; its effect
// stands. A key that is only appended to, or set without being read, never conflicts.
//
// The values are JSON. Errors are those of [state.Tx].
type View struct {
	mu         sync.Mutex
	tx         *state.Tx // a handle of this call alone: it knows which operations the call made
	ttl        time.Duration
	savepoints bool
	pending    []change
	places     []place // savepoints in use, in order
	placed     int     // savepoints made, for their names
	done       bool

	merges *merges
	level  state.Isolation
	seen   map[string]uint64 // number of merges when a key was first read
}

// change is an operation of a call that is not yet part of the turn's state.
type change struct {
	op    state.Operation
	key   string
	value json.RawMessage
	ttl   time.Duration
}

// place is a savepoint: its name, and the number of changes before it.
type place struct {
	name    string
	pending int
}

// maxKey is package state's limit, bytes.
const maxKey = 255

type viewKey struct{}

// StateFrom returns the state that a tool call works on. It returns false if the call belongs to
// no turn, or if it is sent again although its turn has gone on without it.
func StateFrom(ctx context.Context) (*View, bool) {
	v, ok := ctx.Value(viewKey{}).(*View)
	return v, ok
}

func newView(t *turn) *View {
	return &View{
		tx: t.tx.ForCall(), ttl: t.agent.State.TTL, savepoints: t.init.Isolation != state.ReadUncommitted,
		merges: &t.merges, level: t.init.Isolation, seen: map[string]uint64{},
	}
}

// Get returns the value of a key, nil where it is absent.
func (v *View) Get(key string) (json.RawMessage, error) {
	found, err := v.GetMany([]string{key})
	return found[key], err
}

// Exists says that a key has a value.
func (v *View) Exists(key string) (bool, error) {
	found, err := v.GetMany([]string{key})
	return found[key] != nil, err
}

// GetMany returns the values of those keys that are not absent.
func (v *View) GetMany(keys []string) (map[string]json.RawMessage, error) {
	// Lock merges before v.mu, as keep does: a goroutine that a tool left behind may still read
	// while the tool's changes are merged.
	v.merges.mu.RLock()
	defer v.merges.mu.RUnlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	found, err := v.read(keys)
	if err != nil {
		return nil, err
	}
	asked := map[string]bool{}
	for _, k := range keys {
		asked[k] = true
	}
	for _, c := range v.pending {
		if !asked[c.key] {
			continue
		}
		switch c.op {
		case state.Set:
			found[c.key] = c.value
		case state.Delete:
			delete(found, c.key)
		case state.Append:
			if found[c.key], err = appended(c.key, found[c.key], c.value); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// read reads the turn's state, and records the number of merges that the state had.
func (v *View) read(keys []string) (map[string]json.RawMessage, error) {
	for _, key := range keys {
		own := slices.ContainsFunc(v.pending, func(c change) bool { return c.key == key && c.op != state.Append })
		if _, known := v.seen[key]; !known && !own {
			v.seen[key] = v.merges.n
		}
	}
	return v.tx.GetMany(keys)
}

// appended returns a list with a value appended.
func appended(key string, list, value json.RawMessage) (json.RawMessage, error) {
	var all []json.RawMessage
	if list != nil {
		if err := json.Unmarshal(list, &all); err != nil {
			return nil, tga.Errorf(tga.ValidationError, "append to key %q: its value is no list", key)
		}
	}
	return json.Marshal(append(all, value))
}

// Set sets a key to a JSON value. The value expires ttl from now; a zero ttl means the agent's
// default.
func (v *View) Set(key string, value json.RawMessage, ttl time.Duration) error {
	if ttl == 0 {
		ttl = v.ttl
	}
	return v.add(change{state.Set, key, value, ttl})
}

// Delete makes a key absent.
func (v *View) Delete(key string) error { return v.add(change{op: state.Delete, key: key}) }

// Append appends a JSON value to the list that a key has, or makes a list of it.
func (v *View) Append(key string, value json.RawMessage) error {
	return v.add(change{op: state.Append, key: key, value: value})
}

func (v *View) add(c change) error {
	if c.op != state.Delete {
		canonical, err := tga.Canonicalize(c.value, tga.Limits{MaxBytes: state.MaxValue})
		if err != nil {
			return err
		}
		c.value = canonical
	}
	if n := len(c.key); n < 1 || n > state.MaxKey {
		return tga.Errorf(tga.ValidationError, "a key has 1 to %d bytes, this one has %d", maxKey, n)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.done {
		return tga.Errorf(tga.StateInvalidTransition, "the call whose state this was is over")
	}
	v.pending = append(v.pending, c)
	return nil
}

// Checkpoint makes a savepoint and returns its name. [View.Rollback] undoes what the call did after
// it. VALIDATION_ERROR under read_uncommitted.
func (v *View) Checkpoint() (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.savepoints {
		return "", tga.Errorf(tga.ValidationError, "a savepoint under %s", state.ReadUncommitted)
	}
	v.placed++
	name := decimal(v.placed)
	v.places = append(v.places, place{name, len(v.pending)})
	return name, nil
}

// Rollback undoes what the call did since a savepoint, or all of it if savepoint is "". The savepoint
// can be used again, those that were made after it cannot. NOT_FOUND if there is no such savepoint.
func (v *View) Rollback(savepoint string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.savepoints {
		return tga.Errorf(tga.ValidationError, "a rollback under %s", state.ReadUncommitted)
	}
	if savepoint == "" {
		v.pending, v.places = nil, nil
		return nil
	}
	for i, p := range v.places {
		if p.name == savepoint {
			v.pending, v.places = v.pending[:p.pending], v.places[:i+1]
			return nil
		}
	}
	return tga.Errorf(tga.NotFound, "savepoint %q of this call", savepoint)
}

func (v *View) drop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done, v.pending = true, nil
}

// keep merges the call's changes into the turn's state, or refuses them. It returns the
// attachment to store with the call's effect; nil if the call changed and read nothing. The
// caller holds the write lock of [merges].
func (v *View) keep(t *turn, index int) (*chain.Attachment, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done = true
	if len(v.pending) > 0 {
		if keys := v.merges.stale(v.seen, v.pending, v.level); keys != nil {
			v.merges.refuse(index, keys)
			return stored(t, storedOps{Version: tga.TurnOpsVersion, Index: index, Conflict: keys})
		}
	}
	if err := v.tx.Try(v.write); err != nil {
		return nil, err
	}
	v.merges.add(v.pending)
	ops := v.tx.Since(0)
	if len(ops) == 0 {
		return nil, nil
	}
	return stored(t, storedOps{Version: tga.TurnOpsVersion, Index: index, Ops: ops})
}

// write applies the call's changes to the turn's state.
func (v *View) write() error {
	for _, c := range v.pending {
		var err error
		switch c.op {
		case state.Set:
			err = v.tx.Set(c.key, c.value, c.ttl)
		case state.Delete:
			err = v.tx.Delete(c.key)
		case state.Append:
			err = v.tx.Append(c.key, c.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func stored(t *turn, o storedOps) (*chain.Attachment, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, tga.Errorf(tga.GenericStateError, "what a tool did to the state: %w", err)
	}
	return &chain.Attachment{Kind: chain.AttachStream, Key: keyspace.StreamKey(t.id(), keyspace.OpsItem|uint64(o.Index)), Value: raw}, nil
}

// storedOps are the state operations of one tool call. Each operation has its number among those
// of the whole turn.
type storedOps struct {
	Version int        `json:"version"`
	Index   int        `json:"index"`
	Ops     []state.Op `json:"ops"`
	// Conflict names the keys in conflict, if the changes were refused.
	Conflict []string `json:"conflict,omitempty"`
}

func readOps(id tga.ID, raw []byte) (o storedOps, err error) {
	if err := json.Unmarshal(raw, &o); err != nil {
		return o, tga.Errorf(tga.StateChecksumMismatch, "what a tool of turn %s did to the state: %w", id, err)
	}
	if o.Version != tga.TurnOpsVersion {
		return o, tga.Errorf(tga.FormatTooNew, "what a tool of turn %s did to the state has version %d", id, o.Version)
	}
	return o, nil
}
