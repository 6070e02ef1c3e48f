//go:build unix

package gateway

import (
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/schemas/tga"
)

// Watch observes the requests that pass a gate. Its functions are called from many goroutines at
// once. It does not report what the log knows of a call (attempts, doubts, licences).
type Watch struct {
	// Passed is called once for each request that was led to one tool server, when the request has
	// ended: how it ended, and how long it took.
	Passed func(server, method string, end End, took time.Duration)
	// Refused is called for each request or malformed message that was led to no tool server, before
	// it is answered.
	Refused func(why Refusal)
}

// End is how a request that was led to a tool server ended for its client.
type End string

// How a request ends. A tool's own error (isError) is a result.
const (
	EndResult  End = "result"
	EndError   End = "error"
	EndGivenUp End = "given_up" // the client gave the request up
)

// Refusal says why a request was led to no tool server.
type Refusal string

// Why a request is refused.
const (
	RefusedQuota     Refusal = "quota"
	RefusedForbidden Refusal = "forbidden" // the client may not have the tool
	RefusedUnknown   Refusal = "unknown"   // there is no such tool or method
	RefusedInvalid   Refusal = "invalid"   // the message is malformed, or its params are
	RefusedIdentity  Refusal = "identity"  // the client has no known identity
)

// deaf fills in functions that do nothing for those that are nil.
func (w Watch) deaf() Watch {
	if w.Passed == nil {
		w.Passed = func(string, string, End, time.Duration) {}
	}
	if w.Refused == nil {
		w.Refused = func(Refusal) {}
	}
	return w
}

// refusalOf is the [Refusal] that an error stands for.
func refusalOf(err error) Refusal {
	switch tga.CodeOf(err) {
	case tga.PolicyViolation:
		return RefusedForbidden
	case tga.NotFound:
		return RefusedUnknown
	}
	return RefusedInvalid
}

// asked is a request of the client that is under way.
type asked struct {
	m      *member // nil = the fan answers it itself
	method string
	at     time.Time
}

// ended removes a request that has ended, and returns the member that had it. Passed is called only for the first end.
func (f *fan) ended(key frames.Key, end End) (m *member) {
	f.mu.Lock()
	a, waits := f.asked[key]
	delete(f.asked, key)
	f.mu.Unlock()
	if waits && a.m != nil {
		f.g.watch.Passed(a.m.shim.Server(), a.method, end, time.Since(a.at))
	}
	return a.m
}
