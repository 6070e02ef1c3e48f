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

// Memory remembers the messages by which a client has set up its tool server, so that a tool
// server that is started again can get them too.
type Memory struct {
	mu         sync.Mutex
	initialize []byte          // params of initialize
	done       bool            // the client sent notifications/initialized
	agreed     mcpraw.Revision // protocol revision of the handshake
	changes    bool            // the tool server announces changes of its list of tools
	level      []byte          // params of the newest logging/setLevel
	greeting   []byte          // the tool server's answer in the shim's handshake
	greets     bool            // the shim makes the handshake itself
	subscribed map[string][]byte
}

const maxSubscriptions = 1000

// Saw remembers a request or notification of the client that sets up the tool server.
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

// Answered remembers what the answer to a client's initialize agreed on.
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

// ListChanged reports whether the handshake promised the client notifications when the list of
// tools changes.
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

// Replay sets up a new tool server like the one before. The client does not notice.
//
// request makes a request to the tool server, and write sends it a notification.
func (o *Memory) Replay(ctx context.Context, request func(ctx context.Context, method string, params []byte) (*frames.Frame, error), write func(*frames.Message) error) error {
	o.mu.Lock()
	initialize, agreed, level, greets := o.initialize, o.agreed, o.level, o.greets
	var subscribed [][]byte
	for _, p := range o.subscribed {
		subscribed = append(subscribed, p)
	}
	o.mu.Unlock()
	// Once the client has the answer to its initialize, its next message may come at any moment. So the whole
	// handshake is repeated then, although notifications/initialized may come once more.
	if agreed == "" && !greets {
		return nil // there was no handshake that must be repeated
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
			f.Close() // the answer is not needed
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

// Greet makes the shim do the handshake itself, with the params that the client sent for all tool servers.
func (o *Memory) Greet(params []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.initialize, o.done, o.greets, o.changes = params, true, true, true
}

// GoesOn takes over the log level and the subscriptions that an earlier tool server was told.
func (o *Memory) GoesOn(level []byte, subscribed map[string][]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.level, o.subscribed = level, subscribed
}

// Asks returns the subscriptions to resources that the next tool server is told.
func (o *Memory) Asks() map[string][]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.subscribed)
}

// met notes a tool server's answer in the shim's handshake.
func (o *Memory) met(v mcpraw.Revision, result []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.agreed, o.greeting = v, bytes.Clone(result)
}

// Said is the tool server's answer in the shim's handshake, nil until it came.
func (o *Memory) Said() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.greeting
}

// Elicits reports whether the client said in its handshake that it can ask its person.
func (o *Memory) Elicits() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.done && o.agreed.Elicits() && mcpraw.AsksByForm(mcpraw.At(o.initialize, "/capabilities"))
}
