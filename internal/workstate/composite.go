package workstate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tgad/tgad/schemas/tga"
)

// Phase says when a composite snapshot was taken.
type Phase string

// Phases.
const (
	phasePre        Phase = "pre_tool"
	phasePost       Phase = "post_tool"
	phaseCheckpoint Phase = "checkpoint"
	phaseManual     Phase = "manual"
)

var phases = []Phase{phasePre, phasePost, phaseCheckpoint, phaseManual}

// Metadata says why a snapshot was taken.
type Metadata struct {
	Phase      Phase
	Tag        string
	ToolCallID string
	ToolName   string
}

// CompositeSnapshot is an immutable copy of a whole state.
type CompositeSnapshot struct {
	ID        uuid.UUID
	CreatedAt time.Time
	Session   *SessionSnapshot
	Resources map[string]*Node // by the name of their type
	Metadata  *Metadata        // or nil
}

// Snapshot copies the state: no transaction commits between its parts. Resources that
// calls take turns at are looked at anew, so Snapshot waits for a call that has one. o
// says which slices it holds, and its tag goes into the metadata.
func (s *State) Snapshot(ctx context.Context, o SnapshotOptions, tag string) (*CompositeSnapshot, error) {
	t := &Tx{state: s, branches: map[string]Branch{}, turns: map[string]turn{}, pre: map[string]*Node{}}
	if p := FromContext(ctx); p != nil && p.state == s {
		t.parent = p
	}
	if err := t.takeTurns(ctx, nil); err != nil {
		return nil, err
	}
	defer t.passTurns()
	root, err := t.branch(ctx)
	if err != nil {
		return nil, err
	}
	_, resources, err := partsOfRoot(root)
	if err != nil {
		return nil, err
	}
	return &CompositeSnapshot{
		ID: uuid.New(), CreatedAt: s.opts.Clock().UTC(), Session: t.session.Snapshot(o), Resources: resources,
		Metadata: &Metadata{Phase: phaseManual, Tag: tag},
	}, nil
}

// snapshotOf makes a snapshot of one side of a boundary. It includes slices of every
// policy.
func (s *State) snapshotOf(ctx context.Context, b *boundary, phase Phase) (*CompositeSnapshot, error) {
	root, err := s.sideOf(ctx, b, phase)
	if err != nil {
		return nil, err
	}
	c, err := snapshotOfRoot(root)
	if err != nil {
		return nil, err
	}
	at := time.Unix(0, b.record.Began).UTC()
	if phase == phasePost {
		at = at.Add(time.Duration(b.record.ElapsedNs))
	}
	m := &Metadata{Phase: phase, Tag: b.record.Tag, ToolName: b.record.Tool}
	if b.record.Kind == boundaryCall {
		m.ToolCallID = b.record.ID
	} else {
		m.Phase = phaseCheckpoint
	}
	c.ID, c.CreatedAt = uuid.NewSHA1(uuid.Nil, append(root.digest[:], string(phase)+b.record.ID...)), at
	c.Session.CreatedAt, c.Metadata = at, m
	return c, nil
}

// snapshotOfRoot makes a snapshot, of no time, that includes slices of every policy.
func snapshotOfRoot(root *Node) (*CompositeSnapshot, error) {
	session, resources, err := partsOfRoot(root)
	if err != nil {
		return nil, err
	}
	content, policies, err := sessionFrom(session)
	if err != nil {
		return nil, err
	}
	return &CompositeSnapshot{
		Session: &SessionSnapshot{
			content: content, policies: policies,
			includes: map[Policy]bool{PolicyState: true, PolicyLog: true, PolicyCache: true},
		},
		Resources: resources,
	}, nil
}

// sideOf returns the root before or after a boundary, from memory or from the store.
func (s *State) sideOf(ctx context.Context, b *boundary, phase Phase) (*Node, error) {
	s.mu.Lock()
	root, name := b.pre, b.record.Pre
	if phase == phasePost {
		root, name = b.post, b.record.Post
	}
	s.mu.Unlock()
	switch {
	case root != nil:
		return root, nil
	case name == "":
		return nil, tga.Errorf(tga.NotFound, "%q has no state after it", b.record.ID)
	}
	return s.load(ctx, name)
}

type compositeJSON struct {
	CreatedAt  string          `json:"created_at"`
	Metadata   *metadataJSON   `json:"metadata"`
	Resources  []resourceJSON  `json:"resources"`
	Session    json.RawMessage `json:"session"`
	SnapshotID string          `json:"snapshot_id"`
	Version    string          `json:"version"`
}

type metadataJSON struct {
	Phase      Phase   `json:"phase"`
	Tag        *string `json:"tag"`
	ToolCallID *string `json:"tool_call_id"`
	ToolName   *string `json:"tool_name"`
}

type resourceJSON struct {
	ResourceType string          `json:"resource_type"`
	Snapshot     json.RawMessage `json:"snapshot"`
	SnapshotType string          `json:"snapshot_type"`
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func orEmpty(s *string) string { return *cmp.Or(s, new(string)) }

// ToJSON returns the snapshot as JSON: version "1", members sorted by name, resources by
// type. Equal snapshots give equal bytes.
func (c *CompositeSnapshot) ToJSON() ([]byte, error) {
	session, err := c.Session.ToJSON()
	if err != nil {
		return nil, err
	}
	j := compositeJSON{
		CreatedAt: c.CreatedAt.UTC().Format(timeForm), Resources: []resourceJSON{}, Session: session,
		SnapshotID: c.ID.String(), Version: tga.SnapshotVersion,
	}
	for _, name := range slices.Sorted(maps.Keys(c.Resources)) {
		kind, raw, err := exportNode(c.Resources[name])
		if err != nil {
			return nil, err
		}
		j.Resources = append(j.Resources, resourceJSON{name, raw, kind})
	}
	if m := c.Metadata; m != nil {
		j.Metadata = &metadataJSON{m.Phase, orNull(m.Tag), orNull(m.ToolCallID), orNull(m.ToolName)}
	}
	return marshal(j)
}

// ParseCompositeSnapshot reads what ToJSON wrote. Each thing that can be wrong with it
// has its own message; all are VALIDATION_ERROR.
func ParseCompositeSnapshot(raw []byte) (*CompositeSnapshot, error) {
	m, err := object(raw, "snapshot")
	if err != nil {
		return nil, err
	}
	var version, id, created string
	if json.Unmarshal(m["version"], &version) != nil || version != tga.SnapshotVersion {
		return nil, refused("/version", "snapshot version %s, want %q", orNone(m["version"]), tga.SnapshotVersion)
	}
	c := &CompositeSnapshot{Resources: map[string]*Node{}}
	if json.Unmarshal(m["snapshot_id"], &id) != nil {
		return nil, refused("/snapshot_id", "snapshot_id %s is no string", orNone(m["snapshot_id"]))
	}
	if c.ID, err = uuid.Parse(id); err != nil {
		return nil, refused("/snapshot_id", "snapshot_id %q is no UUID", id)
	}
	if json.Unmarshal(m["created_at"], &created) != nil {
		return nil, refused("/created_at", "created_at %s is no string", orNone(m["created_at"]))
	}
	if c.CreatedAt, err = parseTime(created); err != nil {
		return nil, refused("/created_at", "created_at %q is no time", created)
	}
	if _, err := object(m["session"], "session"); err != nil {
		return nil, refused("/session", "the session of the snapshot is not an object")
	}
	if c.Session, err = ParseSessionSnapshot(m["session"]); err != nil {
		return nil, refused("/session", "the session of the snapshot: %v", err)
	}
	if !isArray(m["resources"]) {
		return nil, refused("/resources", "the resources of the snapshot are not a list")
	}
	var list []json.RawMessage
	if err := json.Unmarshal(m["resources"], &list); err != nil {
		return nil, refused("/resources", "resources: %v", err)
	}
	for _, raw := range list {
		if err := c.parseResource(raw); err != nil {
			return nil, err
		}
	}
	c.Metadata, err = parseMetadata(m["metadata"])
	return c, err
}

func (c *CompositeSnapshot) parseResource(raw json.RawMessage) error {
	m, err := object(raw, "entry")
	if err != nil {
		return refused("/resources", "an entry of the resources is not an object")
	}
	var r resourceJSON
	if json.Unmarshal(m["resource_type"], &r.ResourceType) != nil || json.Unmarshal(m["snapshot_type"], &r.SnapshotType) != nil || m["snapshot"] == nil {
		return refused("/resources", "an entry of the resources lacks resource_type, snapshot_type or snapshot")
	}
	if c.Resources[r.ResourceType] != nil {
		return refused("/resources", "resource type %q is there twice", r.ResourceType)
	}
	n, err := importNode(r.SnapshotType, m["snapshot"])
	if err != nil {
		return refused("/resources", "the snapshot of %s: %v", r.ResourceType, err)
	}
	c.Resources[r.ResourceType] = n
	return nil
}

// parseMetadata reads metadata, which may be missing or null.
func parseMetadata(raw json.RawMessage) (*Metadata, error) {
	if raw == nil || bytes.Equal(raw, []byte("null")) {
		return nil, nil
	}
	if _, err := object(raw, "metadata"); err != nil {
		return nil, refused("/metadata", "the metadata of the snapshot is not an object")
	}
	j := metadataJSON{Phase: phaseManual}
	if err := json.Unmarshal(raw, &j); err != nil {
		return nil, refused("/metadata", "metadata: %v", err)
	}
	if !slices.Contains(phases, j.Phase) {
		return nil, refused("/metadata/phase", "phase %q is unknown", j.Phase)
	}
	return &Metadata{Phase: j.Phase, Tag: orEmpty(j.Tag), ToolCallID: orEmpty(j.ToolCallID), ToolName: orEmpty(j.ToolName)}, nil
}
