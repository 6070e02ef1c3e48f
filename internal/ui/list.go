package ui

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	g "maragu.dev/gomponents"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// maxRows is how many calls a page of the list has at most.
const maxRows = 100

// mostLooked limits how many calls a page of the list searches for a text.
const mostLooked = 5000

// query says which calls a list shows.
type query struct {
	wire.TracesQuery
	find string // a text that the tool, the key or the id must contain
}

// states are the states of a call, in the order in which it goes through them.
var states = []tga.State{tga.Pending, tga.Authorized, tga.Executing, tga.Completed, tga.Failed, tga.Denied}

func queryOf(r *http.Request) (q query, err error) {
	v := r.URL.Query()
	q = query{wire.TracesQuery{
		State: v.Get("state"), Namespace: v.Get("namespace"), Server: v.Get("server"), Tool: v.Get("tool"), Key: v.Get("key"), Text: v.Get("text"),
		All: v.Get("all") == "1", Newest: v.Get("order") != "id",
	}, v.Get("find")}
	if after := v.Get("after"); after != "" {
		if q.After, err = tga.ParseID(after); err != nil {
			return q, err
		}
	}
	if before := v.Get("before"); before != "" {
		if q.Before, err = tga.ParseMillis(before); err != nil {
			return q, err
		}
	}
	for name, at := range map[string]*tga.Millis{"since": &q.Since, "until": &q.Until} {
		if text := v.Get(name); text != "" {
			t, err := time.Parse(minutes, text)
			if err != nil {
				return q, tga.Errorf(tga.ValidationError, "%s %.40q: want a time such as %s", name, text, minutes)
			}
			*at = tga.MillisOf(t)
		}
	}
	if q.State != "" && !slices.ContainsFunc(states, func(s tga.State) bool { return s.String() == q.State }) {
		return q, tga.Errorf(tga.ValidationError, "state %.40q: want one of %v", q.State, states)
	}
	return q, nil
}

// minutes is the form in which a browser sends the value of a field for a time.
const minutes = "2006-01-02T15:04"

func (q query) matches(t wire.OpenTrace) bool {
	return q.find == "" || strings.Contains(t.TraceID.String(), q.find) || strings.Contains(t.ToolServer+" "+t.ToolName, q.find) || strings.Contains(t.IdempotencyKey, q.find)
}

// calls reads a page of calls. If the log can list them so, the newest come first; else calls sets q.Newest
// to false and lists them in the order of their ids. more says that there may be others after last.
func (s *Server) calls(ctx context.Context, q *query) (list []wire.OpenTrace, last wire.OpenTrace, more bool, err error) {
	looked := 0
	for t, err := range s.log.Traces(ctx, q.TracesQuery) {
		if e := new(tga.Error); q.Newest && looked == 0 && errors.As(err, &e) && e.Pointer == "/newest" {
			q.Newest = false
			return s.calls(ctx, q)
		}
		if err != nil {
			return nil, last, false, err
		}
		if len(list) == maxRows || looked == mostLooked {
			return list, last, true, nil
		}
		looked, last = looked+1, t
		if q.matches(t) {
			list = append(list, t)
		}
	}
	return list, last, false, nil
}

// traces lists calls.
func (s *Server) traces(w http.ResponseWriter, r *http.Request) {
	q, err := queryOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	list, last, more, err := s.calls(r.Context(), &q)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var rows []g.Node
	for _, t := range list {
		rows = append(rows, h.Tr(h.Td(link(t.TraceID)), h.Td(h.Span(h.Class("state"), h.Text(t.State))), h.Td(when(t.Since)), h.Td(tool(t.ToolServer, t.ToolName)), h.Td(text(t.IdempotencyKey)), h.Td(text(t.Namespace))))
	}
	order := words.byID
	if q.Newest {
		order = words.byAge
	}
	found := g.Group{
		g.If(len(rows) == 0 && !more, h.P(h.Class("say"), h.Text(words.empty))),
		g.If(len(rows) > 0, h.P(h.Class("say"), h.Text(order))),
		g.If(len(rows) > 0, h.Div(h.Class("wide"), h.Table(
			h.THead(h.Tr(h.Th(h.Text("Call")), h.Th(h.Text("State")), h.Th(h.Text("Since")), h.Th(h.Text("Tool")), h.Th(h.Text("Key")), h.Th(h.Text("Namespace")))), h.TBody(rows...)))),
		g.If(more, h.P(h.A(h.Href(q.next(r, last)), h.Text(words.moreCalls)))),
	}
	// A search for a text reads every call of the list, so do not repeat it twice a second.
	if q.find != "" || q.Text != "" {
		s.page(w, r, http.StatusOK, words.traces, q.form(r), found)
		return
	}
	s.page(w, r, http.StatusOK, words.traces, q.form(r), s.living(r, shown, found))
}

// form is the form in which a person chooses the calls of the list.
func (q *query) form(r *http.Request) g.Node {
	var options g.Group
	for _, state := range states {
		options = append(options, h.Option(h.Value(state.String()), g.If(state.String() == q.State, h.Selected()), h.Text(state.String())))
	}
	field := func(label, name, kind string) g.Node {
		return h.Label(h.Text(label+" "), h.Input(h.Name(name), h.Type(kind), h.Value(r.URL.Query().Get(name))))
	}
	return h.Form(h.Class("filter"), h.Method("get"), h.Action("/traces"),
		h.Label(h.Text("State "), h.Select(h.Name("state"), h.Option(h.Value(""), h.Text(words.all)), options)),
		field("Tool server", "server", "text"), field("Tool", "tool", "text"), field("Key", "key", "text"), field("Namespace", "namespace", "text"),
		field("Since (UTC)", "since", "datetime-local"), field("Until (UTC)", "until", "datetime-local"),
		field("In the arguments", "text", "search"), field("In tool, key or id", "find", "search"),
		h.Label(h.Input(h.Type("checkbox"), h.Name("all"), h.Value("1"), g.If(q.All, h.Checked())), h.Text(" finished ones too")),
		h.Button(h.Type("submit"), h.Text("Show")),
	)
}

// next is the URL of the page of the list after a trace.
func (q *query) next(r *http.Request, last wire.OpenTrace) string {
	v := r.URL.Query()
	v.Set("after", last.TraceID.String())
	v.Set("order", "id")
	v.Del("before")
	if q.Newest {
		v.Set("order", "newest")
		v.Set("before", last.Since.String())
	}
	return "/traces?" + v.Encode()
}
