package chain

import (
	"bytes"
	"encoding/json"

	"github.com/tgad/tgad/schemas/tga"
)

// StateErasure stands as item 0 of a stream of state that was erased: what agents keep, and working
// states. The next who writes to the state replaces it.
type StateErasure struct {
	At     tga.Millis `json:"at"`
	Who    string     `json:"who"`
	Reason string     `json:"reason"`
}

const erasureMark = `{"erased":`

// Value is what is stored.
func (e StateErasure) Value() ([]byte, error) {
	return json.Marshal(map[string]StateErasure{"erased": e})
}

// ReadStateErasure reads what stands at item 0, nil where it is not of an erasure.
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
