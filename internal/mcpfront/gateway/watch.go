//go:build unix

package gateway

import (
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/schemas/tga"
)

// Watch hears what passes a gate. Its functions are called from many goroutines at once; what
// the log knows of a call (attempts, doubts, licences) is told there and not here.
type Watch struct {
	// Passed is told of each request that was led to one tool server, once: how it ended, and how
	// long it took.
	Passed func(server, method string, end End, took time.Duration)
	// Refused is told of each request, and of each message that is none, that was led nowhere, before
	// it is answered.
	Refused func(why Refusal)
}

// End is how a request that was led to a tool server ended for its client.
type End string

// How a request ends. A tool's own error (isError) is a result.
const (
	EndResult  End = "result"
	EndError   End = "error"
	EndGivenUp End = "given_up" // by the client
)

// Refusal is why a request was led to no tool server.
type Refusal string

// Why a request is refused.
const (
	RefusedQuota     Refusal = "quota"
	RefusedForbidden Refusal = "forbidden" // the client may not have the tool
	RefusedUnknown   Refusal = "unknown"   // there is no such tool or method
	RefusedInvalid   Refusal = "invalid"   // it is no request that could be led on
	RefusedIdentity  Refusal = "identity"  // whoever asks is nobody
)

// deaf hears nothing where nobody listens.
func (w Watch) deaf() Watch {
	if w.Passed == nil {
		w.Passed = func(string, string, End, time.Duration) {}
	}
	if w.Refused == nil {
		w.Refused = func(Refusal) {}
	}
	return w
}

// refusalOf is why an error refuses a request.
func refusalOf(err error) Refusal {
	switch tga.CodeOf(err) {
	case tga.PolicyViolation:
		return RefusedForbidden
	case tga.NotFound:
		return RefusedUnknown
	}
	return RefusedInvalid
}

// asked is a request of the client's that is under way.
type asked struct {
	m      *member // nil = the fan's to answer
	method string
	at     time.Time
}

// ended takes a request that has come to an end, and whose it was. It ends once, whoever ends it first.
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
