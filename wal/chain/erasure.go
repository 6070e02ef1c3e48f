package chain

import (
	"bytes"
	"encoding/json"

	"github.com/tgad/tgad/schemas/tga"
)

// StateErasure is stored as item 0 of a stream of state that was erased: an agent's state or a
// working state. The next write to the state replaces it.
type StateErasure struct {
	At     tga.Millis `json:"at"`
	Who    string     `json:"who"`
	Reason string     `json:"reason"`
}

const erasureMark = `{"erased":`

// Value returns the stored form.
func (e StateErasure) Value() ([]byte, error) {
	return json.Marshal(map[string]StateErasure{"erased": e})
}

// ReadStateErasure reads the value of item 0. It returns nil if that is not an erasure.
func ReadStateErasure(value []byte) (*StateErasure, error) {
	if !bytes.HasPrefix(value, []byte(erasureMark)) {
		return nil, nil
	}
	var v struct {
		Erased StateErasure `json:"erased"`
	}
	if err := json.Unmarshal(value, &v); err != nil {
		return nil, tga.Errorf(tga.StateChecksumMismatch, "the erasure of a state: %w", err)
	}
	return &v.Erased, nil
}
