package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// StateServer is the tool_server of [State]. A manifest names it, and the operator's rules decide
// about its calls, as for any other tool server.
const StateServer = "tgad-state"

// Limits of the tools of [State]. They are lower than [state.MaxValue], which a program's own
// functions may use, because the values of these tools pass through a model.
const (
	MaxStateKeys  = 64        // read by one call
	MaxStateValue = 64 << 10  // bytes of a value that is set or appended, canonical
	MaxStateRead  = 256 << 10 // bytes of all values that one call reads
	MaxStateTTL   = 10 * 365 * 24 * time.Hour
)

const (
	stateKey   = `{"type":"string","minLength":1,"maxLength":255,"description":"Name of the value."}`
	stateValue = `{"description":"Any JSON value, at most 64 KiB."}`
)

func stateSchema(required, properties string) json.RawMessage {
	return json.RawMessage(`{"type":"object","additionalProperties":false,"required":[` + required + `],"properties":{` + properties + `}}`)
}

// State returns the tools by which an agent reads and changes its own state, which its turn
// commits. What a call changes is stored with its effect, and is kept if the turn succeeds.
func State() Functions {
	return Functions{
		"state_get": {
			Description: "Reads values of your own state, which is kept between turns. Keys without a value are not in the answer.",
			InputSchema: stateSchema(`"keys"`, fmt.Sprintf(`"keys":{"type":"array","minItems":1,"maxItems":%d,"items":%s}`, MaxStateKeys, stateKey)),
			Call:        stateCall(stateGet),
		},
		"state_set": {
			Description: "Sets a value of your own state.",
			InputSchema: stateSchema(`"key","value"`, `"key":`+stateKey+`,"value":`+stateValue+
				fmt.Sprintf(`,"ttl_seconds":{"type":"integer","minimum":1,"maximum":%d,"description":"After this time the value is gone."}`, int64(MaxStateTTL/time.Second))),
			Call: stateCall(stateSet),
		},
		"state_append": {
			Description: "Appends a value to a list of your own state; makes the list where there is none.",
			InputSchema: stateSchema(`"key","value"`, `"key":`+stateKey+`,"value":`+stateValue),
			Call:        stateCall(stateAppend),
		},
		"state_delete": {
			Description: "Removes a value from your own state.",
			InputSchema: stateSchema(`"key"`, `"key":`+stateKey),
			Call:        stateCall(func(v *turn.View, in stateInput) (any, error) { return nil, v.Delete(in.Key) }),
		},
	}
}

// StatePolicy returns the policy of the tools of [State]. They change only the turn's state, and
// their changes are stored with their effect. So a call without an effect has left nothing, and
// may be made again.
func StatePolicy(tool string) runtime.Policy {
	p := runtime.Policy{Class: tga.ClassWrite, Licence: ledger.Licence{Kind: ledger.DedupeArgs}, LicenceSet: true}
	if tool == "state_get" {
		p.Class, p.Licence.Kind = tga.ClassRead, ledger.ReadOnly
	}
	return p
}

type stateInput struct {
	Keys  []string        `json:"keys"`
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
	TTL   int64           `json:"ttl_seconds"`
}

// stateCall makes a [Function]'s Call of an operation on a turn's state. If the operation returns
// nil, the answer is {}.
func stateCall(f func(*turn.View, stateInput) (any, error)) func(context.Context, json.RawMessage) (json.RawMessage, error) {
	return func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
		v, ok := turn.StateFrom(ctx)
		if !ok {
			return nil, tga.Errorf(tga.GenericStateError, "no running turn made this call, so it has no state")
		}
		var in stateInput
		if err := json.Unmarshal(args, &in); err != nil {
			return nil, tga.Errorf(tga.ValidationError, "arguments: %w", err)
		}
		out, err := f(v, in)
		if err != nil {
			return nil, err
		}
		if out == nil {
			return json.RawMessage(`{}`), nil
		}
		return json.Marshal(out)
	}
}

func stateGet(v *turn.View, in stateInput) (any, error) {
	if n := len(in.Keys); n < 1 || n > MaxStateKeys {
		return nil, tga.Errorf(tga.LimitExceeded, "%d keys: want 1 to %d", n, MaxStateKeys)
	}
	for _, key := range in.Keys {
		if n := len(key); n < 1 || n > state.MaxKey {
			return nil, tga.Errorf(tga.ValidationError, "a key has 1 to %d bytes, this one has %d", state.MaxKey, n)
		}
	}
	values, err := v.GetMany(in.Keys)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, value := range values {
		size += len(value)
	}
	if size > MaxStateRead {
		return nil, tga.Errorf(tga.LimitExceeded, "the values have %d bytes together: at most %d are read at once", size, MaxStateRead)
	}
	return map[string]any{"values": values}, nil
}

func stateSet(v *turn.View, in stateInput) (any, error) {
	if in.TTL < 0 || in.TTL > int64(MaxStateTTL/time.Second) {
		return nil, tga.Errorf(tga.ValidationError, "ttl_seconds is %d: want 1 to %d", in.TTL, int64(MaxStateTTL/time.Second))
	}
	if err := stateFits(in.Value); err != nil {
		return nil, err
	}
	return nil, v.Set(in.Key, in.Value, time.Duration(in.TTL)*time.Second)
}

func stateAppend(v *turn.View, in stateInput) (any, error) {
	if err := stateFits(in.Value); err != nil {
		return nil, err
	}
	return nil, v.Append(in.Key, in.Value)
}

// stateFits checks a value. The value is canonical, because the arguments that contain it are.
func stateFits(value json.RawMessage) error {
	if value == nil {
		return tga.Errorf(tga.ValidationError, "value is required")
	}
	if n := len(value); n > MaxStateValue {
		return tga.Errorf(tga.LimitExceeded, "the value has %d bytes: at most %d", n, MaxStateValue)
	}
	return nil
}
