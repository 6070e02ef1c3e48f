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

// merges orders the state changes of calls that run at once in a turn. Only one call at a time
// merges its changes into the turn's state, and no other call reads them before they are durable.
// Otherwise a call could be recorded that builds on a change which a crash took back.
//
// If a call has read what another call changed meanwhile, all its changes are refused: to keep
// them would lose the other call's. The call itself has happened and is not made again, so its
// result says that its changes were refused. The refusal is stored with the call's effect and
// holds after a crash. The zero value is ready for use.
type merges struct {
	mu       sync.RWMutex // a call holds the write lock from its check until its effect is durable
	n        uint64       // merges so far
	changed  map[string]uint64
	conflict map[int][]string // by index of the call: the keys in conflict
}

// refused returns the keys because of which a call's changes were refused.
func (m *merges) refused(index int) []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.conflict[index]
}

// refuse records a refusal. The caller holds mu, or nobody else uses m.
func (m *merges) refuse(index int, keys []string) {
	if m.conflict == nil {
		m.conflict = map[int][]string{}
	}
	m.conflict[index] = keys
}

// stale returns the keys that a call has read and that others have changed since. A serializable
// call depends on everything that it read. Under another level a call loses an update only if it
// writes the key.
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

// refusal returns the failure that tells of a call whose changes were refused.
func refusal(keys []string) *Failure {
	quoted := make([]string, len(keys))
	for i, k := range keys {
		quoted[i] = fmt.Sprintf("%q", k)
	}
	return &Failure{
		Code: tga.StateConflict, Permanent: true,
		Message: "the call was made and its effect stands, but its state changes were discarded, because a concurrent call changed " + clip.Bytes(strings.Join(quoted, ", "), 200),
	}
}
