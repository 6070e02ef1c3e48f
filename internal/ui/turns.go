package ui

import (
	"net/http"
	"slices"
	"strings"

	g "maragu.dev/gomponents"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/schemas/tga"
)

// turns lists the turns of agents: those that have not ended, or all, the newest first.
func (s *Server) turns(w http.ResponseWriter, r *http.Request) {
	all := r.URL.Query().Get("all") == "1"
	list, err := s.listTurns(r, all)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	slices.Reverse(list)
	cut := len(list) > maxRows
	var rows []g.Node
	for _, t := range list[:min(len(list), maxRows)] {
		if t.Err != nil {
			rows = append(rows, h.Tr(h.Td(turnLink(t.InteractionID)), h.Td(h.ColSpan("6"), problem(t.Err))))
			continue
		}
		rows = append(rows, h.Tr(h.Td(turnLink(t.InteractionID)), h.Td(text(t.Agent)), h.Td(text(t.SessionID)), h.Td(h.Textf("%d", t.TurnNumber)),
			h.Td(h.Span(h.Class("state"), h.Text(standing(t)))), h.Td(when(t.Since)), h.Td(text(t.Reason))))
	}
	part := func(body ...g.Node) g.Node { return s.living(r, shown, body...) }
	if all { // this list reads every turn, so do not repeat it twice a second
		part = func(body ...g.Node) g.Node { return g.Group(body) }
	}
	s.page(w, r, http.StatusOK, words.turns,
		h.Form(h.Class("filter"), h.Method("get"), h.Action("/turns"),
			h.Label(h.Input(h.Type("checkbox"), h.Name("all"), h.Value("1"), g.If(all, h.Checked())), h.Text(" finished ones too")),
			h.Button(h.Type("submit"), h.Text("Show")),
		),
		part(
			g.If(len(rows) == 0, h.P(h.Class("say"), h.Text(words.noTurns))),
			g.If(len(rows) > 0, table([]string{"Turn", "Agent", "Session", "Number", "Stands", "Since", "Waits because"}, rows)),
			g.If(cut, h.P(h.Class("dim"), h.Textf("The newest %d of %d.", maxRows, len(list)))),
		),
	)
}

func (s *Server) listTurns(r *http.Request, all bool) ([]turn.Listed, error) {
	if all {
		return turn.List(r.Context(), s.kept)
	}
	open, err := turn.ListOpen(r.Context(), s.kept)
	list := make([]turn.Listed, len(open))
	for i, o := range open {
		list[i].OpenTurn = o
	}
	return list, err
}

// standing is the state of a turn, in a word or two.
func standing(t turn.Listed) string {
	switch {
	case t.Failed:
		return "failed"
	case t.Ended:
		return "ended"
	case t.Waiting != "":
		return "waits in " + string(t.Phase)
	}
	return string(t.Phase)
}

func turnLink(id tga.ID) g.Node {
	return h.A(h.Class("id"), h.Href("/turns/"+id.String()), h.Text(id.String()))
}

// turn is the page of one turn of an agent: its phases, messages, calls, and the changes of its state.
func (s *Server) turn(w http.ResponseWriter, r *http.Request) {
	id, err := tga.ParseID(r.PathValue("id"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	t, err := turn.Tell(r.Context(), s.kept, id)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	facts := []g.Node{
		fact("agent", text(strings.TrimSpace(t.Agent+" "+t.AgentVersion))), fact("session", text(t.SessionID)), fact("turn", h.Textf("%d of the session", t.TurnNumber)),
		fact("stands", h.Text(standing(t.Listed))), fact("began", when(t.Since)), fact("tokens", h.Textf("%d in, %d out", t.Usage.Input, t.Usage.Output)),
	}
	if !t.Previous.IsZero() {
		facts = append(facts, fact("turn before", turnLink(t.Previous)))
	}
	if !t.Next.IsZero() {
		facts = append(facts, fact("turn after", turnLink(t.Next)))
	}
	if t.Parent != nil {
		facts = append(facts, fact("work of", turnLink(t.Parent.InteractionID)))
	}
	steps := g.Map(t.Steps, s.phase)
	s.page(w, r, http.StatusOK, "Turn "+id.String(), s.living(r, shown, h.Dl(facts...), h.H2(h.Text("Phases")), h.Ol(h.Class("steps"), steps),
		h.P(h.Class("dim"), h.Text("head "), h.Code(h.Text(t.Steps[len(t.Steps)-1].Digest.String())))))
}

// kinds maps kinds of a turn's records to states of a call. A record has the colour of that state.
var kinds = map[turn.Kind]tga.State{turn.Done: tga.Completed, turn.Failed: tga.Failed, turn.Parked: tga.Executing}

// phase is one record of a turn's journal.
func (s *Server) phase(step turn.Step) g.Node {
	class := "note"
	if state, ok := kinds[step.Kind]; ok {
		class = "entry " + state.String()
	}
	body := g.Group{
		g.Map(step.Warnings, func(w turn.Warning) g.Node { return h.P(text(w.Tool + ": " + string(w.Code) + ": " + w.Reason)) }),
		g.Map(step.Findings, func(f message.Finding) g.Node {
			return h.P(text("taken out by "+f.Rule+" at "+f.At), h.Textf(", %d times", f.Count))
		}),
		g.If(len(step.Tools) > 0, h.P(text("tools: "+strings.Join(step.Tools, ", ")))),
		g.Map(step.Inferences, inference), g.Map(step.Executions, execution), g.Map(step.Delegations, delegation), g.Map(step.Said, said),
	}
	if q := step.Asked; q != nil {
		body = append(body, h.P(text(q.Model), h.Textf(" is asked, with %d messages and %d tools", len(q.Messages), len(q.Tools))))
	}
	if f := step.Failure; f != nil {
		body = append(body, problem(f))
	}
	if !step.TraceID.IsZero() {
		body = append(body, h.P(h.Text("about the call "), link(step.TraceID)))
	}
	if !step.Child.IsZero() {
		body = append(body, h.P(h.Text("for the turn "), turnLink(step.Child)))
	}
	if d := step.Decided; d != nil {
		body = append(body, h.P(text(d.Who+" decided "+string(d.Action)+": "+d.Note)), g.If(len(d.Value) > 0, show(d.Value)))
	}
	if tx := step.Transaction; tx != nil {
		var rows []g.Node
		for _, c := range tx.Changes {
			rows = append(rows, h.Tr(h.Td(text(c.Key)), h.Td(side(c.Previous)), h.Td(side(c.New)), h.Td(text(string(c.Operation)))))
		}
		body = append(body, h.P(text("state transaction "+tx.ID.String()+": "+string(tx.Status))),
			g.If(len(rows) > 0, table([]string{"Key", "Before the turn", "After it", "How"}, rows)))
	}
	return h.Li(h.Class(class), h.H3(h.Span(h.Class("state"), text(string(step.Phase))), text(string(step.Kind))),
		h.P(h.Class("dim"), h.Textf("%d · ", step.Number), when(step.TS), h.Text(" · "), h.Code(h.Text(step.Digest.String()[:12]))), body)
}

// side is a value before or after a turn.
func side(value []byte) g.Node {
	if len(value) == 0 || string(value) == "null" {
		return h.Span(h.Class("dim"), h.Text("absent"))
	}
	return show(value)
}

func inference(i turn.Inference) g.Node {
	line := []g.Node{text(i.Provider + "/" + i.Model), h.Textf(", attempt %d, %d tokens in, %d out ", i.Attempt, i.Usage.Input, i.Usage.Output)}
	if !i.TraceID.IsZero() {
		line = append(line, link(i.TraceID))
	}
	return g.Group{h.P(line...), failure(i.Failure)}
}

// execution is a call of a tool that the model asked for, with its outcome.
func execution(e turn.ToolExecution) g.Node {
	head := []g.Node{h.Strong(text(e.Name)), text(": " + string(e.Status)), h.Textf(" in %d ms ", e.DurationMS)}
	if !e.TraceID.IsZero() {
		head = append(head, link(e.TraceID))
	}
	return h.Div(h.Class("data"), h.P(head...), show([]byte(e.Input)), g.If(e.Output != "", show([]byte(e.Output))), failure(e.Failure))
}

func delegation(d turn.DelegationTiming) g.Node {
	line := []g.Node{text(string(d.Type) + " to " + d.Target + " ")}
	if !d.InteractionID.IsZero() {
		line = append(line, turnLink(d.InteractionID))
	}
	return g.Group{h.P(line...), failure(d.Failure)}
}

func failure(f *turn.Failure) g.Node {
	if f == nil {
		return g.Group{}
	}
	return problem(f)
}

// said is a message.
func said(m message.Message) g.Node {
	body := g.Group{h.P(h.Class("dim"), text(string(m.Role)), g.If(m.ToolCallID != "", text(", of "+m.ToolCallID)))}
	for _, p := range m.Content {
		switch {
		case p.Type == message.Text:
			body = append(body, show([]byte(p.Text)))
		case p.URI != "":
			body = append(body, h.P(text(string(p.Type)+" at "+p.URI)))
		default:
			body = append(body, h.P(text(string(p.Type)+" "+p.MIME+" "+p.Name), h.Textf(", %d bytes", len(p.Data))))
		}
	}
	for _, c := range m.ToolCalls {
		body = append(body, h.P(h.Text("asks for "), h.Strong(text(c.Name))), show([]byte(c.Arguments)))
	}
	return h.Div(h.Class("data"), body)
}

// table is a table that a narrow screen scrolls.
func table(heads []string, rows []g.Node) g.Node {
	return h.Div(h.Class("wide"), h.TabIndex("0"), h.Table(h.THead(h.Tr(g.Map(heads, func(name string) g.Node { return h.Th(h.Scope("col"), h.Text(name)) }))), h.TBody(rows...)))
}
