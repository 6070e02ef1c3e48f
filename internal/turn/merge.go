package turn

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
)

// merges orders what calls that run at once do to their turn's state. One call's changes
// become the turn's at a time, and nobody reads them before they are durable: else a call
// could be recorded that builds on one which a crash took back.
//
// Where a call has read what another has changed meanwhile, its own changes are refused, all
// of them: to keep them would lose the other's. The call itself has happened and is not made
// again, so that is said in its result. The refusal is stored with its effect and holds after
// a crash. The zero value is for use.
type merges struct {
	mu       sync.RWMutex // written by a call from its check until its effect is durable
	n        uint64       // merges so far
	changed  map[string]uint64
	conflict map[int][]string // by index of the call: keys because of which it was refused
}

// refused returns the keys because of which a call's changes were not kept.
func (m *merges) refused(index int) []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.conflict[index]
}

// refuse notes a refusal, for who holds mu or is alone.
func (m *merges) refuse(index int, keys []string) {
	if m.conflict == nil {
		m.conflict = map[int][]string{}
	}
	m.conflict[index] = keys
}

// stale returns the keys that a call has read, and others have changed since. Serializable
// calls depend on all that they read; others lose an update only where they write it.
func (m *merges) stale(seen map[string]uint64, list []change, level state.Isolation) []string {
	var keys []string
	for key, at := range seen {
		if m.changed[key] <= at {
			continue
		}
		writes := slices.ContainsFunc(list, func(c change) bool { return c.key == key && c.op != state.Append })
		if writes || level == state.Serializable {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func (m *merges) add(list []change) {
	if m.n++; m.changed == nil {
		m.changed = map[string]uint64{}
	}
	for _, c := range list {
		m.changed[c.key] = m.n
	}
}

// refusal is what the result of a call says whose changes were refused.
func refusal(keys []string) *Failure {
	quoted := make([]string, len(keys))
	for i, k := range keys {
		quoted[i] = fmt.Sprintf("%q", k)
	}
	return &Failure{
		Code: tga.StateConflict, Permanent: true,
		Message: "the call was made and its effect stands, but what it did to the state is not kept: a call beside it changed " + clip.Bytes(strings.Join(quoted, ", "), 200),
	}
}
