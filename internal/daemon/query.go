package daemon

import (
	"net/url"
	"slices"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// queries has the query parameters of the routes that have any. schemas/wire/openapi.yaml has
// the same.
var queries = map[string][]string{
	"GET /v1/kept":                  {"tool_server", "namespace", "after"},
	"GET /v1/traces":                {"all", "newest", "state", "namespace", "server", "tool", "key", "class", "text", "since", "until", "after", "before"},
	"GET /v1/traces/{id}/entries":   {"after", "follow"},
	"GET /v1/traces/{id}/documents": {"pointer"},
	"GET /v1/log":                   {"after", "follow", "changes"},
	"GET /v1/evidence/{digest}":     {"trace"},
	"GET /v1/rollback-plan":         {"trace"},
	"GET /v1/attachments":           {"kind", "prefix"},
}

// repeated is the route whose parameter may be in a query more than once: a plan is for many traces.
const repeated = "GET /v1/rollback-plan"

// parameters refuses a query if the route would not read all of it. net/url drops what it cannot
// parse, such as a pair with a semicolon. A filter or a namespace that is dropped or unknown would
// have no effect, and the answer would be to another question.
func (q *request) parameters(rt *route) error {
	if !strings.HasPrefix(rt.path, "/v1/") {
		return nil // probes and scrapers may add parameters of their own
	}
	values, err := url.ParseQuery(q.r.URL.RawQuery)
	if err != nil {
		return tga.Errorf(tga.ValidationError, "the query: %w", err)
	}
	name := rt.method + " " + rt.path
	for parameter, texts := range values {
		at := "/" + tga.EscapeToken(parameter)
		switch {
		case !slices.Contains(queries[name], parameter):
			return tga.Errorf(tga.ValidationError, "unknown query parameter").At(at)
		case len(texts) > 1 && name != repeated:
			return tga.Errorf(tga.ValidationError, "the parameter is given %d times: give it once", len(texts)).At(at)
		}
	}
	return nil
}
