// Package adapter is the engine's side of the kill test: the messages of the protocol, and the loop of a
// program that answers them. docs/TORTURE.md describes the protocol for programs in any language. The
// package uses only the standard library, so that an adapter needs no dependencies but those of its engine.
package adapter

import (
	"errors"
	"fmt"
)

// Protocol is the version of the protocol. A first request with another one is refused.
const Protocol = 1

// MaxLine is how many bytes a line has at most, without its end.
const MaxLine = 64 << 10

// The requests of the harness.
const (
	OpServe  = "serve"
	OpStart  = "start"
	OpCall   = "call"
	OpStatus = "status"
)

// Request is one line that the harness writes.
type Request struct {
	Op string `json:"op"`
	ID uint64 `json:"id"` // the answer repeats it

	// Of serve and start, which is the first request of a process.
	Version int    `json:"version,omitempty"`
	Dir     string `json:"dir,omitempty"`   // the same one for all processes of a run
	World   *World `json:"world,omitempty"` // of start

	// Of call and status.
	Key    string `json:"key,omitempty"`
	Amount int    `json:"amount,omitempty"` // of call

	Load *Load `json:"load,omitempty"` // of load
}

// World is the payment service, which counts the charges of each key.
type World struct {
	URL string `json:"url"` // takes {"key":…,"amount":…} as a POST
	// Dedupes says that the service makes one charge of all requests with the same header
	// Idempotency-Key, for ever.
	Dedupes bool `json:"dedupes"`
}

// Answer is one line that the adapter writes.
type Answer struct {
	ID uint64 `json:"id"`

	Engine  string `json:"engine,omitempty"`  // of serve and start: name, version and setting
	Servers bool   `json:"servers,omitempty"` // of serve: servers run in this process, until its input ends

	Outcome Outcome `json:"outcome,omitempty"` // of call and status
	Receipt int64   `json:"receipt,omitempty"` // of COMPLETED: what the service answered
	Detail  string  `json:"detail,omitempty"`  // in the engine's own words

	Loaded *Loaded `json:"loaded,omitempty"` // of load

	Error string `json:"error,omitempty"` // the request could not be handled; the run ends
}

// Outcome is what an engine says of a call.
type Outcome string

// What an engine can say.
const (
	Completed Outcome = "completed" // the call ran
	Failed    Outcome = "failed"    // the call did not run, and will not
	InDoubt   Outcome = "in_doubt"  // the call may have run; the engine will not send it again by itself
	Running   Outcome = "running"   // the engine is still executing it
	Unknown   Outcome = "unknown"   // the engine has never heard of this key
)

// Final reports whether the outcome is final, so that the client need not ask again.
func (o Outcome) Final() bool { return o == Completed || o == Failed || o == InDoubt }

// Check returns what is wrong with an answer to req.
func (a Answer) Check(req Request) error {
	switch {
	case a.ID != req.ID:
		return fmt.Errorf("the answer has id %d, the request %d", a.ID, req.ID)
	case a.Error != "":
		return nil // the run ends with it
	}
	switch req.Op {
	case OpServe, OpStart:
		if a.Engine == "" {
			return fmt.Errorf("the answer to %s names no engine", req.Op)
		}
		return nil
	case OpLoad:
		if a.Loaded == nil || a.Loaded.Calls < 1 || a.Loaded.Millis <= 0 {
			return errors.New("the answer to load says of no call")
		}
		return nil
	}
	switch a.Outcome {
	case Completed, Failed, InDoubt, Running:
		return nil
	case Unknown:
		if req.Op == OpCall {
			return fmt.Errorf("the outcome of a call is %q: it has just been handed in", a.Outcome)
		}
		return nil
	}
	return fmt.Errorf("outcome %.40q is none of completed, failed, in_doubt, running and unknown", a.Outcome)
}
