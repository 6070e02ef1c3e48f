package workstate

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// SessionSnapshot is an immutable copy of slices of a session.
type SessionSnapshot struct {
	CreatedAt   time.Time
	ParentID    string   // of the session this one was made from; "" = none
	ChildrenIDs []string // UUIDs
	Tags        map[string]string

	includes map[Policy]bool // policies whose slices it holds; the others it says nothing of
	policies map[string]Policy
	content  slicesOf
}

// SnapshotOptions say what a session's snapshot holds. The zero value is STATE slices.
type SnapshotOptions struct {
	Policies   []Policy
	IncludeAll bool
	Tags       map[string]string
}

// Snapshot copies slices of the session. It costs no copying of items.
func (s *Session) Snapshot(o SnapshotOptions) *SessionSnapshot {
	if o.IncludeAll {
		o.Policies = []Policy{PolicyState, PolicyLog, PolicyCache}
	} else if len(o.Policies) == 0 {
		o.Policies = []Policy{PolicyState}
	}
	snap := &SessionSnapshot{CreatedAt: s.schema.clock().UTC(), Tags: maps.Clone(o.Tags), includes: map[Policy]bool{}, policies: map[string]Policy{}, content: slicesOf{}}
	for _, p := range o.Policies {
		snap.includes[p] = true
	}
	policies := s.schema.policies()
	for name, l := range s.content() {
		if p := policies[name]; l.count > 0 && snap.includes[p] {
			snap.content[name], snap.policies[name] = l, p
		}
	}
	return snap
}

// RestoreOptions say what a restore leaves alone. The zero value preserves LOG slices.
type RestoreOptions struct {
	// DropLogs takes LOG slices back too, where the snapshot includes them.
	DropLogs bool
}

// Restore gives the session's slices the content of the snapshot. It touches slices of
// the policies that the snapshot includes: each gets the snapshot's items, or becomes
// empty if the snapshot has none. LOG slices stay unless DropLogs is set. CACHE slices
// are emptied. If session and snapshot disagree on a slice's policy, the snapshot's holds.
//
// SNAPSHOT_MISMATCH if the snapshot has slices that the session does not know. The error
// names them, and the session is then as before.
func (s *Session) Restore(snap *SessionSnapshot, o RestoreOptions) error {
	var unknown []string
	for name := range snap.content {
		if !s.schema.known(name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return tga.Errorf(tga.SnapshotMismatch, "restore: the session has no slices %s", strings.Join(unknown, ", "))
	}
	next := slicesOf{}
	policies := s.schema.policies()
	for name, l := range s.content() {
		p := policies[name]
		if recorded, ok := snap.policies[name]; ok {
			p = recorded
		}
		if p == PolicyLog && !(o.DropLogs && snap.includes[p]) || p == PolicyState && !snap.includes[p] {
			next[name] = l
		}
	}
	for name, l := range snap.content {
		if p := snap.policies[name]; p == PolicyState || p == PolicyLog && o.DropLogs {
			next[name] = l
		}
	}
	s.set(next)
	return nil
}

// sessionJSON is the JSON form of a session's snapshot. Members are in this order.
type sessionJSON struct {
	ChildrenIDs []string          `json:"children_ids"`
	CreatedAt   string            `json:"created_at"`
	Includes    []string          `json:"includes,omitempty"`
	ParentID    *string           `json:"parent_id"`
	Policies    map[string]string `json:"policies"`
	Slices      []sliceJSON       `json:"slices"`
	Tags        map[string]string `json:"tags"`
	Version     string            `json:"version"`
}

type sliceJSON struct {
	ItemType  string            `json:"item_type"`
	Items     []json.RawMessage `json:"items"`
	SliceType string            `json:"slice_type"`
}

const timeForm = time.RFC3339Nano

// ToJSON returns the snapshot as JSON: version "1", members sorted by name, slices by
// type. Equal snapshots give equal bytes.
func (snap *SessionSnapshot) ToJSON() ([]byte, error) {
	j := sessionJSON{
		ChildrenIDs: slices.Concat([]string{}, snap.ChildrenIDs), CreatedAt: snap.CreatedAt.UTC().Format(timeForm),
		Policies: map[string]string{}, Slices: []sliceJSON{}, Tags: map[string]string{}, Version: tga.SnapshotVersion,
	}
	if snap.ParentID != "" {
		j.ParentID = &snap.ParentID
	}
	maps.Copy(j.Tags, snap.Tags)
	for p := range snap.includes {
		j.Includes = append(j.Includes, p.String())
	}
	slices.Sort(j.Includes)
	for _, name := range slices.Sorted(maps.Keys(snap.content)) {
		j.Policies[name] = snap.policies[name].String()
		items := make([]json.RawMessage, 0, snap.content[name].count)
		for item := range snap.content[name].all() {
			items = append(items, item)
		}
		j.Slices = append(j.Slices, sliceJSON{ItemType: name, Items: items, SliceType: name})
	}
	return marshal(j)
}
