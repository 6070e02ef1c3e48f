package handshake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"sync"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpraw"
)

// Memory is what a client said to its tool server to set it up, so that a tool server
// that is started again can be told.
type Memory struct {
	mu         sync.Mutex
	initialize []byte          // params
	done       bool            // initialized was said
	agreed     mcpraw.Revision // protocol revision of the handshake
	changes    bool            // the tool server tells when its list of tools changes
	level      []byte          // params of the newest logging/setLevel
	greeting   []byte          // what the tool server said in the handshake, where the shim made it
	greets     bool            // the shim makes the handshake
	subscribed map[string][]byte
}

const maxSubscriptions = 1000

// Saw looks at a request or notification of the client's.
func (o *Memory) Saw(f *frames.Frame) {
	switch f.Method {
	case "initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
	default:
		return
	}
	var params []byte
	if f.Params.Present() {
		p, err := f.Bytes(f.Params, frames.SpillBytes)
		if err != nil {
			return
		}
		params = append(params, p...)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch f.Method {
	case "initialize":
		o.initialize, o.done, o.agreed = params, false, ""
	case "notifications/initialized":
		o.done = true
	case "logging/setLevel":
		o.level = params
	case "resources/subscribe":
		if o.subscribed == nil {
			o.subscribed = map[string][]byte{}
		}
		if uri := mcpraw.Text(mcpraw.At(params, "/uri")); uri != "" && len(o.subscribed) < maxSubscriptions {
			o.subscribed[uri] = params
		}
	case "resources/unsubscribe":
		delete(o.subscribed, mcpraw.Text(mcpraw.At(params, "/uri")))
	}
}

// Answered looks at the answer to a request of the client's.
func (o *Memory) Answered(method string, f *frames.Frame) {
	if method != "initialize" || !f.Result.Present() {
		return
	}
	result, err := f.Bytes(f.Result, frames.SpillBytes)
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.agreed = mcpraw.Revision(mcpraw.ScalarText(mcpraw.At(result, "/protocolVersion")))
	o.changes = string(mcpraw.At(result, "/capabilities/tools/listChanged")) == "true"
}

// ListChanged reports whether the client was told in the handshake that it will hear of a change
// of the list of tools.
func (o *Memory) ListChanged() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.done && o.changes
}

func (o *Memory) Version() mcpraw.Revision {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.agreed
}

// Replay says to a new tool server what was said to the one before. The client sees
// nothing of it.
//
// request makes a request of it, and write gives it a notification.
func (o *Memory) Replay(ctx context.Context, request func(ctx context.Context, method string, params []byte) (*frames.Frame, error), write func(*frames.Message) error) error {
	o.mu.Lock()
	initialize, done, agreed, level, greets := o.initialize, o.done, o.agreed, o.level, o.greets
	var subscribed [][]byte
	for _, p := range o.subscribed {
		subscribed = append(subscribed, p)
	}
	o.mu.Unlock()
	if !done || agreed == "" && !greets {
		return nil // nothing was agreed that could be gone back on
	}
	f, err := request(ctx, "initialize", initialize)
	if err != nil {
		return err
	}
	defer f.Close()
	if !f.Result.Present() {
		fault, _ := f.Bytes(f.Fault, 1000)
		return fmt.Errorf("it refuses: %s", fault)
	}
	result, err := f.Bytes(f.Result, frames.SpillBytes)
	if err != nil {
		return err
	}
	switch v := mcpraw.Revision(mcpraw.ScalarText(mcpraw.At(result, "/protocolVersion"))); {
	case greets && agreed == "":
		agreed = v
		o.met(v, result)
	case v != agreed:
		return fmt.Errorf("it speaks revision %q, and the client was told %q", v, agreed)
	}
	n := frames.NewFrame([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if err := write(&frames.Message{Env: &n.Envelope, Parts: []io.WriterTo{n}, Agreed: agreed}); err != nil {
		return err
	}
	again := func(method string, params []byte) error {
		if !json.Valid(params) {
			params = []byte("{}")
		}
		f, err := request(ctx, method, params)
		if err == nil {
			f.Close() // its answer is of no interest
		}
		return err
	}
	if level != nil {
		if err := again("logging/setLevel", level); err != nil {
			return err
		}
	}
	for _, p := range subscribed {
		if err := again("resources/subscribe", p); err != nil {
			return err
		}
	}
	return nil
}

// Greet makes the handshake the shim's own: a tool server is told what the client said to all.
func (o *Memory) Greet(params []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.initialize, o.done, o.greets, o.changes = params, true, true, true
}

// GoesOn takes over what was said to a tool server before this one.
func (o *Memory) GoesOn(level []byte, subscribed map[string][]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.level, o.subscribed = level, subscribed
}

// Asks are the subscriptions of resources, as a tool server that follows is told them.
func (o *Memory) Asks() map[string][]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.subscribed)
}

// met notes what a tool server has said in the shim's handshake.
func (o *Memory) met(v mcpraw.Revision, result []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.agreed, o.greeting = v, bytes.Clone(result)
}

// Said is what a tool server has said in the shim's handshake; nil where it has not yet.
func (o *Memory) Said() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.greeting
}

// Elicits reports whether the client said in its handshake that it can ask its person.
func (o *Memory) Elicits() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.done && o.agreed.Elicits() && mcpraw.At(o.initialize, "/capabilities/elicitation") != nil
}
