package ui

import (
	"net/http"
	"slices"
	"strings"

	g "maragu.dev/gomponents"

	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// maxRows is how many calls a page of the list has.
const maxRows = 100

// query is what a list shows.
type query struct {
	client.TracesQuery
	find string // in tool, key or id
}

// states are what a call can be in, in the order of its life.
var states = []tga.State{tga.Pending, tga.Authorized, tga.Executing, tga.Completed, tga.Failed, tga.Denied}

func queryOf(r *http.Request) (query, error) {
	v := r.URL.Query()
	q := query{client.TracesQuery{State: v.Get("state"), Namespace: v.Get("namespace"), All: v.Get("all") == "1"}, v.Get("find")}
	if after := v.Get("after"); after != "" {
		id, err := tga.ParseID(after)
		if err != nil {
			return q, err
		}
		q.After = id
	}
	if q.State != "" && !slices.ContainsFunc(states, func(s tga.State) bool { return s.String() == q.State }) {
		return q, tga.Errorf(tga.ValidationError, "state %.40q: want one of %v", q.State, states)
	}
	return q, nil
}

func (q query) matches(t client.OpenTrace) bool {
	return q.find == "" || strings.Contains(t.TraceID.String(), q.find) || strings.Contains(t.ToolServer+" "+t.ToolName, q.find) || strings.Contains(t.IdempotencyKey, q.find)
}

// traces lists calls, the oldest first, as the daemon does.
func (s *Server) traces(w http.ResponseWriter, r *http.Request) {
	q, err := queryOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var rows []g.Node
	last, more := "", false
	for t, err := range s.log.Traces(r.Context(), q.TracesQuery) {
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if !q.matches(t) {
			continue
		}
		if more = len(rows) == maxRows; more {
			break
		}
		last = t.TraceID.String()
		rows = append(rows, h.Tr(h.Td(link(t.TraceID)), h.Td(h.Span(h.Class("state"), h.Text(t.State))), h.Td(when(t.Since)), h.Td(tool(t.ToolServer, t.ToolName)), h.Td(text(t.IdempotencyKey)), h.Td(text(t.Namespace))))
	}
	var options g.Group
	for _, state := range states {
		options = append(options, h.Option(h.Value(state.String()), g.If(state.String() == q.State, h.Selected()), h.Text(state.String())))
	}
	s.page(w, r, http.StatusOK, words.traces,
		h.Form(h.Class("filter"), h.Method("get"), h.Action("/traces"),
			h.Label(h.Text("State "), h.Select(h.Name("state"), h.Option(h.Value(""), h.Text(words.all)), options)),
			h.Label(h.Text("Namespace "), h.Input(h.Name("namespace"), h.Value(q.Namespace))),
			h.Label(h.Text("Tool, key or id "), h.Input(h.Name("find"), h.Type("search"), h.Value(q.find))),
			h.Label(h.Input(h.Type("checkbox"), h.Name("all"), h.Value("1"), g.If(q.All, h.Checked())), h.Text(" finished ones too")),
			h.Button(h.Type("submit"), h.Text("Show")),
		),
		g.If(len(rows) == 0, h.P(h.Class("say"), h.Text(words.empty))),
		g.If(len(rows) > 0, h.Div(h.Class("wide"), h.Table(
			h.THead(h.Tr(h.Th(h.Text("Call")), h.Th(h.Text("State")), h.Th(h.Text("Since")), h.Th(h.Text("Tool")), h.Th(h.Text("Key")), h.Th(h.Text("Namespace")))), h.TBody(rows...)))),
		g.If(more, h.P(h.A(h.Href(next(r, last)), h.Text(words.moreCalls)))),
	)
}

// next is the page of the list after a trace.
func next(r *http.Request, last string) string {
	v := r.URL.Query()
	v.Set("after", last)
	return "/traces?" + v.Encode()
}
