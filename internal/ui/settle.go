package ui

import (
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	g "maragu.dev/gomponents"

	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// choice reads from the query which calls in doubt are chosen.
func choice(r *http.Request) (c story.Choice, err error) {
	v := r.URL.Query()
	c = story.Choice{Tool: v.Get("tool"), Namespace: v.Get("namespace"), Cause: v.Get("cause")}
	now := time.Now()
	if c.Since, err = story.ParseTime(v.Get("since"), now); err != nil {
		return c, err
	}
	c.Before, err = story.ParseTime(v.Get("before"), now)
	return c, err
}

// doubts is the page for many calls in doubt at once. A person chooses calls, sees the list, gives a reason for
// each call, and settles them. Nothing is done before that last step.
func (s *Server) doubts(w http.ResponseWriter, r *http.Request) {
	c, err := choice(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	all, err := s.log.InDoubt(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	list, v := c.Of(all), r.URL.Query()
	field := func(label, name, hint string) g.Node {
		return h.Label(h.Text(label+" "), h.Input(h.Name(name), h.Value(v.Get(name)), h.Placeholder(hint), h.AutoComplete("off")))
	}
	s.page(w, r, http.StatusOK, words.many,
		h.Form(h.Class("filter"), h.Method("get"), h.Action("/doubts"),
			field("Tool", "tool", "SERVER or SERVER/TOOL"), field("Namespace", "namespace", ""), field("Cause has", "cause", ""),
			field("Since", "since", "2h"), field("Before", "before", "2026-01-31T12:00:00Z"), field("Why, of each", "why", "statement {key}.pdf, page 1"),
			h.Button(h.Type("submit"), h.Text("Choose")),
		),
		h.P(h.Textf("%d of %d calls in doubt are chosen. ", len(list), len(all)), h.Text(words.fill)),
		g.If(len(list) > maxRows, h.P(h.Class("dim"), h.Textf("The oldest %d are shown: settle them first.", maxRows))),
		g.If(len(list) > 0, together(r, list[:min(len(list), maxRows)], v.Get("why"))),
	)
}

// together is the form that settles the calls of a list.
func together(r *http.Request, list []wire.OpenTrace, why string) g.Node {
	var rows []g.Node
	for _, t := range list {
		id := t.TraceID.String()
		cause, since := "", t.Since
		if t.Doubt != nil {
			cause, since = t.Doubt.Cause, t.Doubt.Since
		}
		rows = append(rows, h.Tr(
			h.Td(h.Input(h.Type("checkbox"), h.Name("chosen"), h.Value(id), h.Checked(), h.Aria("label", "settle "+id))),
			h.Td(link(t.TraceID), h.Br(), tool(t.ToolServer, t.ToolName)), h.Td(text(t.IdempotencyKey)), h.Td(when(since)), h.Td(h.Textf("%d", t.Attempts)), h.Td(text(cause)),
			h.Td(h.Input(h.Type("hidden"), h.Name("shown-"+id), h.Value(fmt.Sprint(t.Attempts))),
				reasonInput(r, "why-"+id, h.Value(story.Fill(why, t)), h.Aria("label", "why, of "+id))),
		))
	}
	calls := table([]string{"Settle", "Call", "Key", "In doubt", "Attempts", "Cause", "Why"}, rows)
	if !acts(r) {
		return calls
	}
	var verbs g.Group
	for _, a := range doubtActions {
		verbs = append(verbs, h.Li(button("/doubts/"+a.verb, a), h.Span(h.Text(a.follows))))
	}
	return h.Form(h.Class("actions"), h.Method("post"), token(r), calls, h.Ul(verbs))
}

// settle settles the chosen calls one by one, each with its reason. If somebody else settled a call first, the
// page says so, and the other calls are still settled.
func (s *Server) settle(w http.ResponseWriter, r *http.Request) {
	if !s.permitted(w, r) {
		return
	}
	verb, form := r.PathValue("verb"), r.PostForm
	chosen := form["chosen"]
	if len(chosen) == 0 || len(chosen) > maxRows {
		s.fail(w, r, tga.Errorf(tga.ValidationError, "%d calls are chosen: want 1 to %d", len(chosen), maxRows).At("/chosen"))
		return
	}
	// Check all of the form before doing anything.
	todo := make([]settlement, len(chosen))
	for i, text := range chosen {
		var err error
		if todo[i], err = read(r, verb, text, form.Get("shown-"+text), form.Get("why-"+text)); err != nil {
			s.fail(w, r, err)
			return
		}
	}
	var rows []g.Node
	failed := 0
	for _, x := range todo {
		var what g.Node
		if res, err := s.settleOne(r.Context(), x); err != nil {
			failed++
			what = problem(err)
		} else {
			what = text(settled(verb, res.State))
		}
		rows = append(rows, h.Tr(h.Td(link(x.trace)), h.Td(what)))
	}
	s.page(w, r, http.StatusOK, words.many,
		h.P(h.Role("status"), h.Textf("%d of %d calls are settled.", len(todo)-failed, len(todo))), g.If(failed > 0, h.P(h.Text(words.somebodyFirst))),
		table([]string{"Call", "What became of it"}, rows), h.P(h.A(h.Href("/"), h.Text(words.goOn))))
}

// settlement is the part of a form about one call in doubt.
type settlement struct {
	trace    tga.ID
	verb     string
	why      string
	attempts uint32 // that the form showed
}

// read checks the values of a form and makes a settlement.
func read(r *http.Request, verb, trace, shown, why string) (x settlement, err error) {
	x.verb, x.why = verb, strings.TrimSpace(why)
	if x.trace, err = tga.ParseID(trace); err != nil {
		return x, err
	}
	if x.why == "" {
		return x, tga.Errorf(tga.ValidationError, "%s", words.noReason).In(x.trace).At("/why")
	}
	if _, known := story.Known[verb]; !known && verb != "abandon" {
		return x, tga.Errorf(tga.NotFound, "nobody can settle a call by %.40q", verb).In(x.trace)
	}
	v := of(r.Context())
	least, most := v.bounds()
	if n := utf8.RuneCountInString(x.why); n < least || n > most {
		return x, tga.Errorf(tga.ValidationError, "the reason has %d characters: want %d to %d", n, least, most).In(x.trace).At("/why")
	}
	x.why = v.reason(x.why)
	x.attempts, err = attempts(shown)
	return x, err
}
