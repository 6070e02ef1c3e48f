package manifest

import (
	"strings"
	"time"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
)

var modes = map[string]state.Mode{
	"none": state.None, "stateless": state.None,
	"session":    state.Session,
	"persistent": state.Persistent, "long_running": state.Persistent,
}

var levels = map[string]state.Isolation{
	"read_uncommitted": state.ReadUncommitted, "read_committed": state.ReadCommitted,
	"repeatable_read": state.RepeatableRead, "serializable": state.Serializable,
}

func (r *reader) state(a *turn.Agent, root *node) {
	set(r, &a.State.Mode, "State.Mode", oneOf(modes, "none, session or persistent"), root)
	set(r, &a.State.Isolation, "State.Isolation", oneOf(levels, "read_uncommitted, read_committed, repeatable_read or serializable"), root)
	set(r, &a.State.TTL, "State.TTL", retention, root)
}

// workspace reads the directory and the database that the agent's tools work on. Whoever runs the
// agent decides whether these may be used, because a rollback removes files.
func (r *reader) workspace(a *turn.Agent, root *node) {
	set(r, &a.Workspace.Directory, "Workspace.Directory", text, root)
	set(r, &a.Workspace.Exclude, "Workspace.Exclude", texts, root)
	set(r, &a.Workspace.Database, "Workspace.Database", text, root)
	if n := root.at("spec.workspace"); n != nil && n.kind == isObject && a.Workspace.Directory == "" && len(a.Workspace.Exclude) > 0 {
		r.wrong(n, "workspace excludes paths of a directory that it does not name")
	}
}

// oneOf reads a word that must be one of the given words.
func oneOf[T any](words map[string]T, want string) func(*reader, place) (T, bool) {
	return func(r *reader, p place) (v T, ok bool) {
		s, ok := word(r, p)
		if !ok {
			return v, false
		}
		if v, ok = words[s]; !ok {
			r.wrong(p.node, "%s is %s, and must be %s", p.name, describe(p.node), want)
		}
		return v, ok
	}
}

// retention reads how long values are kept; 0 and "forever" mean for ever.
func retention(r *reader, p place) (time.Duration, bool) {
	if strings.EqualFold(p.text, "forever") {
		return 0, true
	}
	return span(r, p)
}

var summaries = map[string]message.Strategy{
	"truncate":  message.Truncate,
	"summarize": message.Summarize, "summarization": message.Summarize,
	"sliding": message.Sliding, "sliding_window": message.Sliding,
}

func (r *reader) conversation(a *turn.Agent, root *node) {
	set(r, &a.Memory.Window, "Memory.Window", count(1), root)
	set(r, &a.Memory.Tokens, "Memory.Tokens", count(1), root)
	if name, ok := take(r, "Memory.Strategy", word, root); ok {
		if a.Memory.Strategy, ok = summaries[name]; !ok {
			a.Memory.Strategy = message.Sliding
			r.warn(places("Memory.Strategy", root)[0].node, "the strategy %q is read as sliding", name)
		}
	}
	if on, ok := take(r, "Memory.Summarize", truth, root); ok && !on {
		a.Memory.Strategy = message.Truncate
	} else if ok && a.Memory.Strategy == "" {
		a.Memory.Strategy = message.Summarize
	}
	if on, ok := take(r, "Chain.Stop", truth, root); ok {
		a.Chain.Stop = !on
	}
	set(r, &a.Chain.MaxToolTurns, "Chain.MaxToolTurns", count(1), root)
	set(r, &a.Chain.Confirm, "Chain.Confirm", truth, root)
}

var scopes = map[string]turn.InstanceScope{"pod": turn.PerPod, "process": turn.PerProcess, "request": turn.PerRequest}

func (r *reader) identity(a *turn.Agent, root *node) {
	id := &a.Identity
	if name, ok := take(r, "Identity.Scope", word, root); ok {
		if id.Scope, ok = scopes[name]; !ok {
			id.Scope = turn.PerProcess
			r.warn(places("Identity.Scope", root)[0].node, "the scope %q of an instance id is read as process", name)
		}
	}
	if scope, ok := take(r, "Identity.Interaction", word, root); ok && scope != "turn" {
		r.warn(places("Identity.Interaction", root)[0].node, "an interaction id is new for every turn, whatever its scope")
	}
	if inherit, ok := take(r, "Identity.NewSession", truth, root); ok {
		id.NewSession = !inherit
	}
	if baggage, ok := take(r, "Identity.NoBaggage", truth, root); ok {
		id.NoBaggage = !baggage
	}
	if format, ok := take(r, "Identity.NoTraceContext", word, root); ok {
		id.NoTraceContext = format == "none"
		if format != "none" && format != "w3c" {
			r.warn(places("Identity.NoTraceContext", root)[0].node, "the trace context %q is read as w3c", format)
		}
	}
}
