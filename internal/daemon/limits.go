package daemon

import (
	"strconv"
	"sync"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// envelopeDepth is how many levels a message adds around the JSON that the limit of depth
// applies to: {"items":[{"artifacts":[{"artifact":…
const envelopeDepth = 6

const (
	maxHeaderBytes = 64 << 10
	maxClientName  = 128
)

// places limits how many of something there are at a time, per name. After close, take refuses,
// and the channel of close says when the last place was given back.
type places struct {
	mu     sync.Mutex
	limit  int
	taken  map[string]int
	total  int
	closed bool
	idle   chan struct{} // closed when closed and nothing is taken
}

func newPlaces(limit int) *places {
	return &places{limit: limit, taken: map[string]int{}, idle: make(chan struct{})}
}

// bound changes the limit. Places that are taken stay taken.
func (p *places) bound(limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = limit
}

// take takes a place. The caller must call leave once for each take or takeOver that returned nil.
func (p *places) take(name, what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed && p.taken[name] >= p.limit {
		return tooMany("%s: there are %d already", what, p.limit)
	}
	return p.add(name)
}

// takeOver is take for work that has a limit of its own: it takes a place also over the limit, so
// it refuses only after close.
func (p *places) takeOver(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.add(name)
}

func (p *places) add(name string) error {
	if p.closed {
		return tga.Errorf(tga.StoreUnavailable, "the daemon stops")
	}
	p.taken[name]++
	p.total++
	return nil
}

func (p *places) leave(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[name]--; p.taken[name] == 0 {
		delete(p.taken, name)
	}
	if p.total--; p.closed && p.total == 0 {
		close(p.idle)
	}
}

// close ends take. The returned channel is closed once all places are given back.
func (p *places) close() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		if p.total == 0 {
			close(p.idle)
		}
	}
	return p.idle
}

func (p *places) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

// decode reads the body into a message. It reads a missing body as {}, so a route whose message
// has no required member needs no body.
func (q *request) decode(v any) error {
	raw := q.body
	if raw == nil {
		raw = []byte("{}")
	}
	return wire.Decode(raw, v)
}

// timeout is the time that the caller gives, 0 for none.
func (q *request) timeout() (time.Duration, error) {
	text := q.r.Header.Get(wire.HeaderTimeout)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, tga.Errorf(tga.ValidationError, "%s %.40q: want a positive duration, as 250ms", wire.HeaderTimeout, text)
	}
	return d, nil
}

// count refuses a number that is not 1 to most: more than most is LIMIT_EXCEEDED, and less
// than one is VALIDATION_ERROR.
func count(what string, n, most int) *tga.Error {
	code := tga.LimitExceeded
	switch {
	case n < 1:
		code = tga.ValidationError
	case n <= most:
		return nil
	}
	return tga.Errorf(code, what+": want 1 to %d", n, most)
}

// number reads a query parameter, 0 where it is absent.
func (q *request) number(name string) (uint64, error) {
	text := q.r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > tga.MaxSafeInteger {
		return 0, tga.Errorf(tga.ValidationError, "%s=%.40q: want an integer from 0 to %d", name, text, tga.MaxSafeInteger).At("/" + name)
	}
	return n, nil
}

// flag reads a query parameter that is 1 or absent.
func (q *request) flag(name string) (bool, error) {
	switch text := q.r.URL.Query().Get(name); text {
	case "", "0":
		return false, nil
	case "1":
		return true, nil
	default:
		return false, tga.Errorf(tga.ValidationError, "%s=%.40q: want 1 or nothing", name, text).At("/" + name)
	}
}

// traceID reads the trace id in the path.
func (q *request) traceID() (tga.ID, error) {
	id, err := tga.ParseID(q.r.PathValue("id"))
	if err != nil {
		return id, tga.Errorf(tga.ValidationError, "trace id in the path: %w", err).At("/id")
	}
	return id, nil
}
