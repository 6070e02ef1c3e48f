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

// Lister lists what a tool server has, all of it. It returns soon after ctx ends.
// mcp.Server, [Functions] and grpccall.Server are Listers.
type Lister interface {
	ListTools(ctx context.Context) ([]mcpraw.Tool, error)
}

// offer is one tool of a server's list.
type offer struct {
	remote      string
	description string
	schema      json.RawMessage // canonical
	seen        seen
	err         error // why it can't be used
}

// seen are digests of what a tool was: of its input schema, as [turn.Tool] has it, and of
// its whole definition. A zero one is not known.
type seen struct{ schema, whole tga.Digest }

// listing is one answer to "what do you have".
type listing struct {
	offers  []offer
	by      map[string]int          // index in offers, by name
	drift   map[string]turn.Warning // of tools that are not what they were
	missing []turn.Warning          // of tools that were there before
}

// source is one tool server as a source of tools. Its list is asked for by one caller at a
// time; others that need it wait for that answer.
type source struct {
	name   string
	lister Lister
	opts   *Options

	mu      sync.Mutex
	flight  *flight // nil while nobody asks
	current *listing
	failure error // of the newest list, until retryAt
	until   time.Time
	version uint64 // goes up when what is known becomes old
	before  map[string]seen
	notes   map[string]bool // tools of the list before this one
}

// flight is a list under way. Its fields are set before done is closed.
type flight struct {
	done chan struct{}
	got  *listing
	err  error
	gone bool // the caller that asked went away; its error is nobody else's
}

// list returns what the server has, from memory while that is fresh. A failure is
// remembered too, for a shorter while: a server that hangs must not cost every turn a
// time-out.
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

// ask gets a list and ends the flight with it.
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

// keep remembers an answer. One that was asked for before the server said that its tools
// changed is good for those who waited for it and for nobody after them.
func (s *source) keep(version uint64, got *listing, err error, fresh time.Duration) {
	s.current, s.failure = got, err
	s.until = time.Time{}
	if version == s.version {
		s.until = s.opts.Clock().Add(fresh)
	}
}

// settle compares a list with the one before it.
func (s *source) settle(offers []offer) *listing {
	l := &listing{offers: offers, by: make(map[string]int, len(offers)), drift: map[string]turn.Warning{}}
	now := make(map[string]bool, len(offers))
	for i, o := range offers {
		if _, ok := l.by[o.remote]; ok {
			continue // the first of two with one name; resolving says so
		}
		l.by[o.remote] = i
		now[o.remote] = true
		was, known := s.before[o.remote]
		if !known && s.opts.Pinned != nil {
			was.schema, known = s.opts.Pinned(s.name, o.remote)
		}
		switch {
		case !known || o.err != nil: // one that can't be used is left out in any case
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

// invalidate makes what is known old.
func (s *source) invalidate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.until = time.Time{}
}

// accept takes the newest definitions for those that are compared with.
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
	// Served lists are read without the lock: the answer changes in a copy.
	accepted := *s.current
	accepted.drift = map[string]turn.Warning{}
	s.current = &accepted
}

// read reads the definitions of a list. One that can't be used keeps its place, with the
// reason.
func (s *source) read(tools []mcpraw.Tool) []offer {
	offers := make([]offer, 0, len(tools))
	for _, t := range tools {
		o := offer{remote: t.Name}
		// Members are matched exactly: encoding/json would take "InputSchema" too.
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
		// The canonical form, so that the order of members is no change. What has none is
		// compared as it stands.
		form, err := tga.Canonicalize(t.Definition, tga.Limits{})
		if err != nil {
			form = t.Definition
		}
		o.seen.whole = tga.Sum(form)
		offers = append(offers, o)
	}
	return offers
}

// codeOf returns the code of an error, or the one given for an error without any.
func codeOf(err error, or tga.Code) tga.Code {
	if c := tga.CodeOf(err); c != "" {
		return c
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return tga.ToolTimeout
	}
	return or
}
