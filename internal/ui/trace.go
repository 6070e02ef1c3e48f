package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	g "maragu.dev/gomponents"

	"github.com/tgad/tgad/internal/picture"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// asked fetches the trace that a request names. If that fails, it writes the answer.
func (s *Server) asked(w http.ResponseWriter, r *http.Request) (said wire.Timeline, ok bool) {
	id, err := tga.ParseID(r.PathValue("id"))
	if err == nil {
		said, err = s.log.Trace(r.Context(), id)
	}
	if err != nil {
		s.fail(w, r, err)
	}
	return said, err == nil
}

// documents fetches the documents of a trace.
func (s *Server) documents(ctx context.Context, id tga.ID) story.Documents {
	return func(pointer string) ([]byte, error) {
		data, _, err := s.log.Document(ctx, id, pointer)
		return data, err
	}
}

// trace is the page of one call: its state, and each step. Every digest and link was checked before the page is
// made, and the browser can check them again.
func (s *Server) trace(w http.ResponseWriter, r *http.Request) {
	said, ok := s.asked(w, r)
	if !ok {
		return
	}
	t, err := story.Fold(said, s.documents(r.Context(), said.TraceID))
	if err != nil && story.Unread(err) {
		s.fail(w, r, err)
		return
	}
	if err != nil {
		s.page(w, r, http.StatusOK, said.TraceID.String(), h.P(h.Class("problem"), h.Text(words.noVerify)), problem(err), rawLink(said.TraceID))
		return
	}
	facts := facts(t)
	if said.Held {
		facts = append(facts, fact("now", h.Text("it is running")))
	}
	var act g.Node = g.Group{}
	switch {
	case said.Approval != nil:
		act = s.approval(r, *said.Approval)
	case story.InDoubt(t) && !said.Held && acts(r):
		act = h.Section(h.H2(h.Text(words.whatHappened)), s.settling(r, said.TraceID))
	}
	s.page(w, r, http.StatusOK, "Call "+said.TraceID.String(),
		s.living(r, shown,
			h.Dl(facts...), act, course(t),
			h.H2(h.Text("Steps")), steps(t, func(name string, data []byte) g.Node {
				if name == argsLine { // the daemon has no document of them
					return g.If(len(data) > maxShown, rawLink(said.TraceID))
				}
				return h.A(h.Href("/traces/"+said.TraceID.String()+"/document?pointer="+url.QueryEscape("/"+name)), h.Text(words.download))
			}),
			h.P(h.Class("dim"), h.Text("head "), h.Code(h.Text(t.Head.Digest.String())), h.Text(" "), rawLink(said.TraceID)),
		),
		h.P(h.Button(h.ID("verify"), h.Type("button"), h.Data("raw", "/traces/"+said.TraceID.String()+"/raw"), h.Text("Verify in this browser")), h.Span(h.ID("verdict"), h.Role("status"))),
	)
}

// facts are the main facts of a trace: its tool, key and state, among others.
func facts(t *chain.Trace) (facts g.Group) {
	if t.Request != nil {
		q := t.Request.Request
		facts = append(facts, fact("tool", tool(q.Proposal.ToolServer, q.Proposal.ToolName)), fact("key", text(story.Key(t))), fact("handed in by", text(runtime.SubmitterOf(t))))
	}
	facts = append(facts, fact("state", text(story.Standing(t))), fact("namespace", text(t.Namespace)))
	if t.Deadline != 0 {
		facts = append(facts, fact("deadline", when(t.Deadline)))
	}
	return facts
}

// course is the picture of a trace. Package picture escapes its text.
func course(t *chain.Trace) g.Node {
	svg := string(picture.Draw(story.Title(t), story.CourseOf(t)))
	return h.Div(h.Class("wide"), g.Raw(strings.Replace(svg, picture.Namespace, "", 1)))
}

// underNewLicence is the action that lets the current licence decide. It is empty if that licence is the attempt's, or
// would not let the call continue.
func (s *Server) underNewLicence(ctx context.Context, id tga.ID) []action {
	would, err := s.do.Relicense(ctx, id, wire.RelicenseRequest{Reason: words.askedByView, DryRun: true})
	if err != nil {
		return nil // it would change nothing, or this peer may not do it
	}
	return []action{{relicensing, words.newLicence, fmt.Sprintf(words.underNewLicence, would.Was, would.Now, story.Following[would.Next]), true}}
}

// settling are the actions for a call that may have run. While its executor may still send it, nobody can know
// that it did not run, so the action that says so is left out.
func (s *Server) settling(r *http.Request, id tga.ID) g.Node {
	doubts, err := s.log.InDoubt(r.Context())
	if err != nil {
		return problem(err)
	}
	for _, t := range doubts {
		if t.TraceID == id {
			return actions(r, id.String(), fmt.Sprint(t.Attempts), append(s.underNewLicence(r.Context(), id), doubtActions...))
		}
	}
	yet := slices.DeleteFunc(slices.Clone(doubtActions), func(a action) bool { return story.Known[a.verb].Class.Releases() })
	return g.Group{h.P(h.Text(words.atWork)), actions(r, id.String(), "", yet)}
}

func rawLink(id tga.ID) g.Node {
	return h.A(h.Href("/traces/"+id.String()+"/raw"), h.Text(words.raw))
}

// argsLine is the name of the line with the arguments of a call.
const argsLine = "args"

// steps are the entries and notes in their order. download makes the link to a document, or to arguments that are cut.
func steps(t *chain.Trace, download func(name string, data []byte) g.Node) g.Node {
	var all g.Group
	for _, step := range story.Of(t) {
		all = append(all, one(step, download))
	}
	return h.Ol(h.Class("steps"), all)
}

// one is the item of one entry or note.
func one(step story.Step, download func(name string, data []byte) g.Node) g.Node {
	var lines []g.Node
	for _, l := range step.Lines {
		if l.Name == "" && l.Data == nil {
			lines = append(lines, h.P(text(l.Text)))
			continue
		}
		var link g.Node = g.Group{}
		if step.State != "" {
			link = download(l.Name, l.Data)
		}
		lines = append(lines, h.Div(h.Class("data"), h.Span(h.Class("dim"), text(l.Name), h.Textf(", %d bytes ", len(l.Data))), link, show(l.Data)))
	}
	class := "entry " + step.State
	if step.State == "" {
		class = "note"
	}
	return h.Li(h.Class(class), h.H3(g.If(step.State != "", h.Span(h.Class("state"), h.Text(step.State))), text(step.What)),
		h.P(h.Class("dim"), text(step.Number), h.Text(" · "), when(step.TS), h.Text(" · "), h.Code(h.Text(step.Digest.String()[:12]))), g.Group(lines))
}

// rawTrace is what the browser verifies: the canonical entries, artifacts and notes, as text.
type rawTrace struct {
	TraceID tga.ID     `json:"trace_id"`
	Entries []rawEntry `json:"entries"`
	Notes   []string   `json:"notes"`
}

type rawEntry struct {
	Entry    string `json:"entry"`
	Artifact string `json:"artifact,omitempty"` // "" when erased
}

// raw is a trace as it is stored.
func (s *Server) raw(w http.ResponseWriter, r *http.Request) {
	said, ok := s.asked(w, r)
	if !ok {
		return
	}
	b, err := stored(said)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	s.write(w, b)
}

// stored is the part of a trace that the browser verifies, as JSON. Whatever the log contains, it has no markup.
func stored(said wire.Timeline) ([]byte, error) {
	out := rawTrace{TraceID: said.TraceID, Notes: []string{}}
	for _, e := range said.Entries {
		artifact := string(e.Artifact)
		if artifact == "null" {
			artifact = ""
		}
		out.Entries = append(out.Entries, rawEntry{string(e.Entry), artifact})
	}
	for _, n := range said.Notes {
		out.Notes = append(out.Notes, string(n))
	}
	return json.Marshal(out)
}

// document answers with a document as a download. The browser never displays it with its own type, so no answer
// of a tool can run in the browser.
func (s *Server) document(w http.ResponseWriter, r *http.Request) {
	id, err := tga.ParseID(r.PathValue("id"))
	var data []byte
	if err == nil {
		data, _, err = s.log.Document(r.Context(), id, r.URL.Query().Get("pointer"))
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment; filename=document")
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'")
	s.write(w, data)
}
