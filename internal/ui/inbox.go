package ui

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	g "maragu.dev/gomponents"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// inbox is the page of what waits for a person: calls in doubt and decisions, the oldest first.
func (s *Server) inbox(w http.ResponseWriter, r *http.Request) {
	doubts, err := s.log.InDoubt(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	asked, err := s.log.Approvals(r.Context())
	var unread runtime.UnreadApprovals
	if !errors.As(err, &unread) && err != nil {
		s.fail(w, r, err)
		return
	}
	var cards []g.Node
	if len(asked) > 0 {
		cards = append(cards, h.H2(h.Textf("%s (%d)", words.approvals, len(asked))))
	}
	for _, u := range unread {
		cards = append(cards, problem(u))
	}
	for _, p := range asked {
		cards = append(cards, s.approval(r, p))
	}
	if len(doubts) > 0 {
		cards = append(cards, h.H2(h.Textf("%s (%d)", words.inDoubt, len(doubts))), g.If(len(doubts) > 1 && acts(r), h.P(h.A(h.Href("/doubts"), h.Text(words.many)))))
	}
	for _, t := range doubts {
		cards = append(cards, s.doubt(r, t))
	}
	if len(cards) == 0 {
		cards = []g.Node{h.P(h.Class("say"), h.Text(words.nothing))}
	}
	body := s.living(r, "inbox", cards...)
	var down g.Node
	if err := s.log.Ready(r.Context()); err != nil {
		down = problem(err)
	}
	s.page(w, r, http.StatusOK, words.inbox, g.If(down != nil, down), s.bell(), body)
}

// bell is a button that turns the browser's notifications on. ui.js shows it if the browser has notifications, and
// raises them while the page is hidden. The text beside the button says whether they are on.
func (s *Server) bell() g.Node {
	if s.opts.ReadOnly {
		return g.Group{}
	}
	return h.P(h.ID("bell"), g.Attr("hidden"),
		h.Data("doubt", words.newDoubt), h.Data("approval", words.newApproval), h.Data("many", words.newMany), h.Data("on", words.bellOn), h.Data("off", words.bellOff),
		h.Button(h.Type("button"), h.Text(words.bell)), h.Text(" "), h.Span(h.Class("dim"), h.Role("status")),
	)
}

// approval is the card of one pending question, with everything that it is about.
func (s *Server) approval(r *http.Request, p wire.Approval) g.Node {
	asked, err := s.log.Request(r.Context(), p.TraceID)
	if err != nil {
		return h.Article(h.Data("kind", "approval"), link(p.TraceID), problem(err))
	}
	yes := 0
	var votes []g.Node
	for _, v := range p.Votes {
		said := "against"
		if v.Approve {
			yes, said = yes+1, "for"
		}
		votes = append(votes, h.Li(text(fmt.Sprintf("%s voted %s: %s", v.Who, said, v.Rationale))))
	}
	expires := g.Node(h.Text("never"))
	if p.Expires != 0 {
		expires = when(p.Expires)
	}
	return h.Article(h.Data("kind", "approval"),
		h.H3(tool(asked.Request.Proposal.ToolServer, asked.Request.Proposal.ToolName)), link(p.TraceID),
		asks(asked),
		h.Dl(fact("asked", when(p.Since)), fact("expires", expires), fact("votes", h.Textf("%d of %d", yes, p.Required)), fact("what is asked", h.Text(p.Kind)), fact("why", text(p.Why))),
		g.If(len(votes) > 0, h.Ul(votes...)),
		actions(r, p.TraceID.String(), p.About.String(), decisions),
	)
}

// doubt is the card of one call in doubt, with what is known about it.
func (s *Server) doubt(r *http.Request, t wire.OpenTrace) g.Node {
	d := t.Doubt
	if d == nil {
		d = &wire.Doubt{Since: t.Since}
	}
	args := g.Node(g.Group{})
	if asked, err := s.log.Request(r.Context(), t.TraceID); err == nil {
		args = asks(asked)
	}
	return h.Article(h.Data("kind", "doubt"),
		h.H3(tool(t.ToolServer, t.ToolName)), link(t.TraceID),
		h.P(text(clause(d.Cause, "It may have run, and no answer is on record"))), args,
		h.Dl(
			fact("in doubt", when(d.Since)), fact("attempts", h.Textf("%d", t.Attempts)), fact("key", text(t.IdempotencyKey)),
			g.If(d.Licence != "", fact("licence", h.Text(d.Licence))),
			g.If(d.Probes > 0, fact("the tool was asked", text(fmt.Sprintf("%d times, last: %s", d.Probes, d.Answer)))),
			g.If(d.Next != 0, fact("asked again", when(d.Next))),
			g.If(len(d.Settles) > 0, fact("what ends it", text(strings.Join(d.Settles, ", ")))),
		),
		actions(r, t.TraceID.String(), fmt.Sprint(t.Attempts), doubtActions),
	)
}

// asks shows the arguments of a request. Where the page has not all of them, it leads to the rest: nobody is to approve
// what they could not see.
func asks(a *tga.Artifact) g.Node {
	return g.Group{
		g.If(a.Request.Intent != "", h.P(text(a.Request.Intent))), show(a.Request.Proposal.Args),
		g.If(len(a.Request.Proposal.Args) > maxShown, h.P(rawLink(a.TraceID))),
		g.If(a.Meta[tga.MetaRedacted] == true, h.P(h.Class("dim"), h.Text(words.redacted))),
	}
}

func clause(s, other string) string {
	return cmp.Or(s, other)
}

// button is the button of an action.
func button(path string, a action) g.Node {
	class := "act"
	if a.grave {
		class = "act grave"
	}
	return h.Button(h.Type("submit"), h.Class(class), h.FormAction(path), h.FormMethod("post"), h.Text(a.name))
}

// actions is one form with a field for the reason, and with a button for each action and its consequence.
// shown is what the page shows of the trace: the question or the number of attempts. The form sends it back,
// because the trace may change in between.
func actions(r *http.Request, trace, shown string, all []action) g.Node {
	if !acts(r) {
		return g.Group{}
	}
	id := "why-" + trace
	rows := g.Group{}
	for _, a := range all {
		rows = append(rows, h.Li(button("/traces/"+trace+"/"+a.verb, a), h.Span(h.Text(a.follows))))
	}
	return h.Form(h.Class("actions"), h.Method("post"), token(r), h.Input(h.Type("hidden"), h.Name("shown"), h.Value(shown)),
		h.Label(h.For(id), h.Text(words.why)),
		reasonInput(r, "why", h.ID(id), h.Required(), h.Aria("describedby", id+"-hint")),
		h.Small(h.ID(id+"-hint"), h.Text(words.whyHint)),
		h.Ul(rows...),
	)
}
