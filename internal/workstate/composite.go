package workstate

import (
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

// Snapshot copies the state as of one moment: no transaction commits between its parts.
// It reads the resources that calls take turns at anew, so it waits for a call that holds
// one. o says which slices the snapshot holds. tag goes into the metadata.
//
// A resource that keeps content outside the store, a [Collector], may drop the content of
// the snapshot in the next collection, unless a boundary has the same content. A restore
// of the snapshot then fails with the resource's own error, and changes nothing. Use
// [State.Checkpoint] for a state to go back to.
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

// snapshotOfRoot makes a snapshot without a time that includes slices of every policy.
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
