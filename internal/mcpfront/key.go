package mcpfront

import (
	"cmp"
	"net/url"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// key names a call, by the first rule that gives a name. A derived name is no idempotency
// key: it only joins identical calls of one connection that are under way together. The log
// decides whether a call repeats an earlier one ([call.Decide]).
func (q *call) key() (string, error) {
	if k := q.Params.MetaValue(toolcall.MetaKey); k != nil {
		return q.named(mcpraw.ScalarText(k)), validKey(mcpraw.ScalarText(k), "/_meta/"+tga.EscapeToken(toolcall.MetaKey))
	}
	if k := q.Params.Proposed; k != nil {
		return q.named(mcpraw.ScalarText(k)), validKey(mcpraw.ScalarText(k), "/idempotencyKey")
	}
	if q.tool.KeyPointer != "" {
		if k := mcpraw.ScalarText(mcpraw.At(q.Args, q.tool.KeyPointer)); k != "" {
			return q.named(k), nil
		}
	}
	for _, name := range q.conv.s.opts.CallIDs {
		if id := q.Params.MetaText(name); id != "" {
			return q.named(name + "=" + id), nil
		}
	}
	q.Derived, q.Scope = true, cmp.Or(q.Params.MetaText(toolcall.MetaScope), q.conv.s.opts.Scope)
	if q.conv.shared || !q.conv.s.NeedsKey(q.Params.Tool) {
		// Read calls are never joined, and neither are calls of clients that share a
		// conversation: the log decides which of those are identical. So the name is unique.
		return "apart " + frames.Nonce(), nil
	}
	name, err := ledger.DeriveKey(q.conv.id, q.Scope, q.Params.Tool, q.Args, 0)
	if err == nil {
		q.conv.s.Undisturbed(name)
	}
	return name, err
}

// The longest key that the log takes.
const maxLedgerKey = 255

// named returns a client's key with the key space before it. The tool server gets it in that form too:
// it knows no namespaces, and could answer one client's call with the result of another's.
func (q *call) named(k string) string {
	if space := q.conv.s.opts.KeySpace; space != "" {
		k = url.QueryEscape(space) + ":" + k // escaped, it has no colon of its own
	}
	return fit(k)
}

// fit returns a key that the log accepts: it replaces a key that is too long by its digest.
func fit(k string) string {
	if len(k) <= maxLedgerKey {
		return k
	}
	sum := tga.Sum([]byte(k))
	return "sha256=" + sum.String()
}

func validKey(k, at string) error {
	if k == "" {
		return tga.Errorf(tga.ValidationError, "want a string of 1 to %d characters", maxLedgerKey).At("/params" + at)
	}
	return nil
}
