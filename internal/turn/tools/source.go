package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// Lister lists all tools of a tool server. It returns soon after ctx ends. mcp.Server,
// [Functions] and grpccall.Server are Listers.
type Lister interface {
	ListTools(ctx context.Context) ([]mcpraw.Tool, error)
}

// offer is one tool of a server's list.
type offer struct {
	remote      string
	description string
	schema      json.RawMessage // canonical
	seen        seen
	err         error // why it cannot be used
}

// seen are digests of an earlier definition of a tool: of its input schema, as in [turn.Tool],
// and of the whole definition. A zero digest means that it is not known.
type seen struct{ schema, whole tga.Digest }

// listing is one list of a server's tools.
type listing struct {
	offers  []offer
	by      map[string]int          // index in offers, by name
	drift   map[string]turn.Warning // of tools whose definition changed
	missing []turn.Warning          // of tools that are no longer listed
}

// source is one tool server as a source of tools. One caller at a time asks for its list; other
// callers that need the list wait for that answer.
type source struct {
	name   string
	lister Lister
	opts   *Options

	mu      sync.Mutex
	flight  *flight // nil while nobody asks for the list
	current *listing
	failure error // of the newest list, until retryAt
	until   time.Time
	version uint64 // increases when the known list becomes stale
	before  map[string]seen
	notes   map[string]bool // tools of the previous list
}

// flight is a request for a list that is under way. Its fields are set before done is closed.
type flight struct {
	done chan struct{}
	got  *listing
	err  error
	gone bool // the caller that asked has left; its error concerns nobody else
}

// list returns the server's tools, from memory while that is fresh. It remembers a failure too,
// for a shorter time: a server that hangs must not cost every turn a time-out.
func (s *source) list(ctx context.Context) (*listing, error) {
	for {
		s.mu.Lock()
		if s.opts.Clock().Before(s.until) {
			defer s.mu.Unlock()
			return s.current, s.failure
		}
		f := s.flight
		if f == nil {
			f = &flight{done: make(chan struct{})}
			s.flight = f
			version := s.version
			s.mu.Unlock()
			s.ask(ctx, f, version)
			return f.got, f.err
		}
		s.mu.Unlock()
		select {
		case <-f.done:
			if !f.gone {
				return f.got, f.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// ask requests the list and ends the flight with the answer.
func (s *source) ask(ctx context.Context, f *flight, version uint64) {
	bounded, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	tools, err := s.lister.ListTools(bounded)
	if err == nil && len(tools) > s.opts.MaxTools {
		err = tga.Errorf(tga.LimitExceeded, "list of %d tools, at most %d", len(tools), s.opts.MaxTools)
	}
	var offers []offer
	if err == nil {
		offers = s.read(tools)
	} else if bounded.Err() != nil && ctx.Err() == nil {
		err = tga.Errorf(tga.ToolTimeout, "no list within %v: %w", s.opts.Timeout, err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(f.done)
	s.flight = nil
	if err != nil {
		f.err, f.gone = err, ctx.Err() != nil
		if !f.gone {
			s.keep(version, nil, err, min(s.opts.RetryAfter, s.opts.TTL))
		}
		return
	}
	f.got = s.settle(offers)
	s.keep(version, f.got, nil, s.opts.TTL)
}

// keep remembers an answer. If the server said that its tools changed after the answer was
// requested, the answer serves only the callers who waited for it.
func (s *source) keep(version uint64, got *listing, err error, fresh time.Duration) {
	s.current, s.failure = got, err
	s.until = time.Time{}
	if version == s.version {
		s.until = s.opts.Clock().Add(fresh)
	}
}

// settle compares a list with the previous list.
func (s *source) settle(offers []offer) *listing {
	l := &listing{offers: offers, by: make(map[string]int, len(offers)), drift: map[string]turn.Warning{}}
	now := make(map[string]bool, len(offers))
	for i, o := range offers {
		if _, ok := l.by[o.remote]; ok {
			continue // of two tools with the same name the first is taken; discover warns about that
		}
		l.by[o.remote] = i
		now[o.remote] = true
		was, known := s.before[o.remote]
		if !known && s.opts.Pinned != nil {
			was.schema, known = s.opts.Pinned(s.name, o.remote)
		}
		switch {
		case !known || o.err != nil: // a tool that cannot be used is left out in any case
		case was.schema != o.seen.schema:
			l.drift[o.remote] = turn.Warning{Tool: o.remote, Code: tga.ToolSchemaChanged,
				Reason: fmt.Sprintf("input schema on %s changed from %s to %s", s.name, was.schema, o.seen.schema)}
		case was.whole != (tga.Digest{}) && was.whole != o.seen.whole:
			l.drift[o.remote] = turn.Warning{Tool: o.remote, Code: tga.ToolSchemaChanged,
				Reason: fmt.Sprintf("definition on %s, besides the input schema, changed from %s to %s", s.name, was.whole, o.seen.whole)}
		}
		if _, changed := l.drift[o.remote]; (!changed || !s.opts.LeaveOutChanged) && o.err == nil {
			s.before[o.remote] = o.seen
		}
	}
	for name := range s.notes {
		if !now[name] {
			l.missing = append(l.missing, turn.Warning{Tool: name, Code: tga.NotFound, Reason: "no longer in the list of " + s.name})
		}
	}
	sortWarnings(l.missing)
	s.notes = now
	return l
}

// invalidate marks the known list as stale.
func (s *source) invalidate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.until = time.Time{}
}

// accept makes the newest definitions the ones that later lists are compared with.
func (s *source) accept() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return
	}
	for name, i := range s.current.by {
		if o := s.current.offers[i]; o.err == nil {
			s.before[name] = o.seen
		}
	}
	// Callers read lists without the lock, so change a copy.
	accepted := *s.current
	accepted.drift = map[string]turn.Warning{}
	s.current = &accepted
}

// read reads the definitions of a list. A definition that cannot be used keeps its place in the
// list, with the reason.
func (s *source) read(tools []mcpraw.Tool) []offer {
	offers := make([]offer, 0, len(tools))
	for _, t := range tools {
		o := offer{remote: t.Name}
		// Match names of members exactly: encoding/json would accept "InputSchema" too.
		var members map[string]json.RawMessage
		o.err = json.Unmarshal(t.Definition, &members)
		if text, ok := members["description"]; ok && o.err == nil {
			o.err = json.Unmarshal(text, &o.description)
		}
		if o.err == nil && len(o.description) > s.opts.MaxDescription {
			o.err = tga.Errorf(tga.LimitExceeded, "description of %d bytes, at most %d", len(o.description), s.opts.MaxDescription)
		}
		if o.err == nil {
			o.schema, o.seen.schema, o.err = prepare(members["inputSchema"], s.opts.MaxSchema)
		}
		// Use the canonical form, so that another order of members is no change. A definition
		// without one is compared byte by byte.
		form, err := tga.Canonicalize(t.Definition, tga.Limits{})
		if err != nil {
			form = t.Definition
		}
		o.seen.whole = tga.Sum(form)
		offers = append(offers, o)
	}
	return offers
}

// codeOf returns the code of an error, or the given code for an error without one.
func codeOf(err error, or tga.Code) tga.Code {
	if c := tga.CodeOf(err); c != "" {
		return c
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return tga.ToolTimeout
	}
	return or
}
