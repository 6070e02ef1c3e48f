package story

import (
	"bytes"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// Matches reports whether a trace, as a list shows it, matches a query. [Within] checks the rest of the
// query.
func Matches(q *wire.TracesQuery, t wire.OpenTrace) bool {
	if !q.All {
		if state, err := tga.ParseState(t.State); err == nil && state.Terminal() {
			return false
		}
	}
	is := func(want, has string) bool { return want == "" || want == has }
	return is(q.State, t.State) && is(q.Namespace, t.Namespace) && is(q.Server, t.ToolServer) && is(q.Tool, t.ToolName) && is(q.Key, t.IdempotencyKey) &&
		t.Since >= q.Since && (q.Until == 0 || t.Since < q.Until)
}

// Within checks the parts of a query that need more than a list shows: the outcome class of the effect, and
// a text in the stored arguments, which do not have what was redacted. request and effect are nil if they
// are erased or missing.
func Within(q *wire.TracesQuery, request, effect *tga.Artifact) bool {
	if q.Class != "" && (effect == nil || ledger.ClassOf(effect).String() != q.Class) {
		return false
	}
	return q.Text == "" || request != nil && bytes.Contains(request.Request.Proposal.Args, []byte(q.Text))
}
