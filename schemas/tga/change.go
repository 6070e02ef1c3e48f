package tga

import (
	"encoding/json"
	"fmt"
	"slices"
)

// StateChange is something that a call changed in the world (Aetheris 1.0 ⑤). A verifier can
// check later whether the change still holds.
type StateChange struct {
	ResourceType string `json:"resource_type"` // 1..64 bytes; names the verifier
	ResourceID   string `json:"resource_id"`   // 1..1024 bytes
	Operation    string `json:"operation"`     // 1..64 bytes: create, update, delete, …
	Version      string `json:"version,omitempty"`
	ETag         string `json:"etag,omitempty"`
	ExternalRef  string `json:"external_ref,omitempty"`
}

// MaxStateChanges is how many changes one effect may list.
const MaxStateChanges = 1000

// EncodeStateChanges returns the canonical document that an effect binds under
// [PointerStateChanges]: a JSON array. VALIDATION_ERROR names the change and the
// member that is out of its limits, LIMIT_EXCEEDED says there are too many.
func EncodeStateChanges(changes []StateChange) ([]byte, error) {
	if len(changes) > MaxStateChanges {
		return nil, Errorf(LimitExceeded, "%d state changes: at most %d", len(changes), MaxStateChanges).At(PointerStateChanges)
	}
	for i := range changes {
		if err := changes[i].check(i); err != nil {
			return nil, err
		}
	}
	raw, err := json.Marshal(changes)
	if err != nil {
		return nil, Errorf(ValidationError, "state changes: %w", err)
	}
	if changes == nil {
		raw = []byte("[]")
	}
	// Never digest what encoding/json wrote, only its canonical form.
	return Canonicalize(raw, Limits{})
}

// DecodeStateChanges reads what [EncodeStateChanges] writes, and a caller's array in
// any spelling that the gate takes. Unknown members are refused.
func DecodeStateChanges(raw []byte) ([]StateChange, error) {
	if err := Gate(raw, Limits{}); err != nil {
		return nil, err
	}
	var members []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, Errorf(ValidationError, "state changes: %w", err).At(PointerStateChanges)
	}
	for i := range members {
		for name := range members[i] {
			// A decoder into StateChange ignores the case of names: of two members that differ in
			// that alone, it would take one, and another reader of the same digest the other.
			if !slices.Contains(stateChangeMembers[:], name) {
				return nil, Errorf(ValidationError, "state change %d: unknown member %.80q", i, name).At(fmt.Sprintf("%s/%d", PointerStateChanges, i))
			}
		}
	}
	var changes []StateChange
	if err := json.Unmarshal(raw, &changes); err != nil {
		return nil, Errorf(ValidationError, "state changes: %w", err).At(PointerStateChanges)
	}
	if _, err := EncodeStateChanges(changes); err != nil {
		return nil, err
	}
	return changes, nil
}

var stateChangeMembers = [...]string{"resource_type", "resource_id", "operation", "version", "etag", "external_ref"}

func (c *StateChange) check(i int) error {
	for _, f := range [...]struct {
		name, value string
		least, most int
	}{
		{"resource_type", c.ResourceType, 1, 64},
		{"resource_id", c.ResourceID, 1, 1024},
		{"operation", c.Operation, 1, 64},
		{"version", c.Version, 0, 1024},
		{"etag", c.ETag, 0, 1024},
		{"external_ref", c.ExternalRef, 0, 1024},
	} {
		if n := len(f.value); n < f.least || n > f.most {
			return Errorf(ValidationError, "state change %d: %s has %d bytes, want %d..%d", i, f.name, n, f.least, f.most).At(fmt.Sprintf("%s/%d/%s", PointerStateChanges, i, f.name))
		}
	}
	return nil
}
