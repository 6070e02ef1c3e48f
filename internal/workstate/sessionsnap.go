package workstate

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

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

// Restore makes the session's slices what the snapshot says. It touches the slices of
// the policies that the snapshot includes: each gets its items, or none where the
// snapshot has none. LOG slices stay unless DropLogs is set. CACHE slices are emptied.
// Where session and snapshot have different policies for a slice, the snapshot's holds.
//
// SNAPSHOT_MISMATCH, naming them, where the snapshot has slices that the session does not
// know; the session is then as before.
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

// ParseSessionSnapshot reads what ToJSON wrote. Each thing that can be wrong with it has
// its own message; all are VALIDATION_ERROR. It makes no value of any type that the text
// names: items stay bytes until a slice of the program's own types reads them.
func ParseSessionSnapshot(raw []byte) (*SessionSnapshot, error) {
	m, err := object(raw, "snapshot")
	if err != nil {
		return nil, err
	}
	var version string
	if json.Unmarshal(m["version"], &version) != nil || version != tga.SnapshotVersion {
		return nil, refused("/version", "snapshot version %s, want %q", orNone(m["version"]), tga.SnapshotVersion)
	}
	var j sessionJSON
	if _, list := m["slices"], isArray(m["slices"]); !list {
		return nil, refused("/slices", "slices of a session snapshot are not a list")
	}
	if err := json.Unmarshal(raw, &j); err != nil {
		return nil, refused("", "session snapshot: %v", err)
	}
	snap := &SessionSnapshot{ChildrenIDs: j.ChildrenIDs, Tags: j.Tags, includes: map[Policy]bool{}, policies: map[string]Policy{}, content: slicesOf{}}
	if snap.CreatedAt, err = parseTime(j.CreatedAt); err != nil {
		return nil, refused("/created_at", "created_at %q is no time", j.CreatedAt)
	}
	if j.ParentID != nil {
		snap.ParentID = *j.ParentID
	}
	for _, id := range append(slices.Clone(j.ChildrenIDs), cmp.Or(snap.ParentID, uuid.Nil.String())) {
		if _, err := uuid.Parse(id); err != nil {
			return nil, refused("", "session id %q is no UUID", id)
		}
	}
	for name, text := range j.Policies {
		if snap.policies[name], err = parsePolicy(text); err != nil {
			return nil, refused("/policies", "%v", err)
		}
	}
	// A snapshot without includes says of which policies it is by the slices it has.
	snap.includes[PolicyState] = len(j.Includes) == 0
	for _, text := range j.Includes {
		p, err := parsePolicy(text)
		if err != nil {
			return nil, refused("/includes", "%v", err)
		}
		snap.includes[p] = true
	}
	for _, sl := range j.Slices {
		if sl.SliceType == "" || snap.content[sl.SliceType] != nil {
			return nil, refused("/slices", "slice type %q is empty or there twice", sl.SliceType)
		}
		items := make([][]byte, 0, len(sl.Items))
		for _, item := range sl.Items {
			items = append(items, compact(item))
		}
		p := snap.policies[sl.SliceType]
		snap.content[sl.SliceType], snap.policies[sl.SliceType] = listOf(items), p
		if len(j.Includes) == 0 {
			snap.includes[p] = true
		}
	}
	return snap, nil
}

// object reads a JSON object's members.
func object(raw []byte, what string) (map[string]json.RawMessage, error) {
	if !json.Valid(raw) {
		return nil, refused("", "%s is not JSON", what)
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil || m == nil {
		return nil, refused("", "%s is not an object", what)
	}
	return m, nil
}

func refused(pointer, format string, args ...any) error {
	return tga.Errorf(tga.ValidationError, format, args...).At(pointer)
}

func isArray(raw json.RawMessage) bool {
	var list []json.RawMessage
	return json.Unmarshal(raw, &list) == nil && list != nil
}

func orNone(raw json.RawMessage) string {
	if raw == nil {
		return "none"
	}
	return string(raw)
}

// parseTime reads a time; one without a zone is taken to be UTC.
func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(timeForm, s)
	if err != nil {
		t, err = time.Parse("2006-01-02T15:04:05.999999999", s)
	}
	return t.UTC(), err
}
