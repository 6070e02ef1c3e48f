package mcp

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
)

// mirrors are annotations in the definitions of a server's tools: they say which arguments a
// call of revision 2026-07-28 over HTTP repeats in headers.
type mirrors struct {
	listing chan struct{} // held while the server is asked for its definitions

	mu    sync.Mutex
	all   map[string]mirror // by tool; nil while the definitions are not known
	asked uint64            // number of times that all was forgotten
}

// mirror holds what one definition says of headers.
type mirror struct {
	headers []mcpraw.ParamHeader
	bad     error // why the tool must not be called; nil if it may be
}

// mirrors reports whether calls of a session may repeat arguments in headers.
func (s *Server) mirrors(sess *session) bool {
	return s.opts.URL != "" && sess.version.Stateless()
}

// forget makes the next call ask for the definitions.
func (sess *session) forget() {
	sess.known.mu.Lock()
	defer sess.known.mu.Unlock()
	sess.known.all = nil
	sess.known.asked++
}

// learn remembers the annotations of a list of tools, and returns the tools that may be called.
func (sess *session) learn(tools []Tool, log *slog.Logger) []Tool {
	all := make(map[string]mirror, len(tools))
	good := tools[:0:0]
	for _, t := range tools {
		var m mirror
		if m.headers, m.bad = mcpraw.ParamHeaders(mcpraw.At(t.Definition, "/inputSchema")); m.bad != nil {
			log.Warn("a tool is left out: its definition breaks the rules for headers", "tool", t.Name, "error", m.bad)
		} else {
			good = append(good, t)
		}
		all[t.Name] = m
	}
	sess.known.mu.Lock()
	defer sess.known.mu.Unlock()
	sess.known.all = all
	return good
}

func (sess *session) mirror(tool string) (m mirror, known bool) {
	sess.known.mu.Lock()
	defer sess.known.mu.Unlock()
	return sess.known.all[tool], sess.known.all != nil
}

// mirrored returns the arguments of a call that go into headers. If the server's definitions are
// not known, it lists the tools first; fresh says that it did so for this call. If the list fails,
// the call gets no such headers, and fresh is false. Errors are ErrNotSent.
func (s *Server) mirrored(ctx context.Context, sess *session, call runtime.Call) (_ []mcpraw.ParamValue, fresh bool, _ error) {
	if !s.mirrors(sess) {
		return nil, true, nil
	}
	m, known := sess.mirror(call.Tool)
	if !known {
		select {
		case sess.known.listing <- struct{}{}:
			defer func() { <-sess.known.listing }()
		case <-ctx.Done():
			return nil, true, notSent("waiting for the tools' definitions: %v", context.Cause(ctx))
		}
		if m, known = sess.mirror(call.Tool); !known {
			fresh = true
			tools, err := s.list(ctx, sess)
			if err != nil {
				s.log.Debug("the tools' definitions cannot be had; no argument goes into a header", "error", err)
				return nil, false, nil // a refusal for the headers is no answer to the call
			}
			sess.learn(tools, s.log)
			m, _ = sess.mirror(call.Tool)
		}
	}
	if m.bad != nil {
		return nil, fresh, notSent("its definition breaks the rules for headers: %w", m.bad)
	}
	values, err := mcpraw.ParamValues(m.headers, call.Args)
	if err != nil {
		return nil, fresh, notSent("%w", err)
	}
	return values, fresh, nil
}

// headerMismatch reports whether the server refused the request because it expected other
// headers. Then the request did not run.
func (a *answer) headerMismatch() bool {
	var fault struct {
		Code int64 `json:"code"`
	}
	return a.fault.present && json.Unmarshal(a.fault.data, &fault) == nil && fault.Code == mcpraw.CodeHeaderMismatch
}
