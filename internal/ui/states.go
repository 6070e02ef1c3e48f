package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/schemas/tga"
)

// states lists the working states of a store.
func (s *Server) states(w http.ResponseWriter, r *http.Request) {
	list, err := workstate.States(r.Context(), s.kept)
	if err != nil && list == nil {
		s.fail(w, r, err)
		return
	}
	var rows []g.Node
	var unread g.Node
	if err != nil {
		unread = h.P(h.Class("say"), text(err.Error()))
	}
	for _, st := range list {
		name := stateName(st.ID, st.Number)
		rows = append(rows, h.Tr(h.Td(h.A(h.Class("id"), h.Href(statePath(st.ID, st.Number)), h.Text(name))), h.Td(h.Code(h.Text(st.Root.String()[:12]))),
			h.Td(h.Textf("%d", st.Boundaries)), h.Td(h.Textf("%d", st.Open)), h.Td(text(st.Forked))))
	}
	s.page(w, r, http.StatusOK, words.states, unread,
		g.If(len(rows) == 0, h.P(h.Class("say"), h.Text(words.noStates))),
		g.If(len(rows) > 0, table([]string{"State", "Root", "Boundaries", "Open", "Forked at"}, rows)))
}

// stateName is the name of a state on the command line.
func stateName(id tga.ID, number uint32) string {
	if number == 0 {
		return id.String()
	}
	return fmt.Sprintf("%s/%d", id, number)
}

func statePath(id tga.ID, number uint32) string { return fmt.Sprintf("/states/%s/%d", id, number) }

// state is the page of one working state: the boundaries that it can be rolled back to, or what one of them changed.
func (s *Server) state(w http.ResponseWriter, r *http.Request) {
	id, err := tga.ParseID(r.PathValue("id"))
	var number uint64
	if err == nil {
		if number, err = strconv.ParseUint(r.PathValue("number"), 10, 24); err != nil {
			err = tga.Errorf(tga.ValidationError, "the number of a fork: %w", err)
		}
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	st, err := workstate.Inspect(r.Context(), s.kept, id, uint32(number), workstate.Options{Ring: math.MaxInt})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if call := r.URL.Query().Get("call"); call != "" {
		s.boundary(w, r, st, call)
		return
	}
	list := st.List()
	slices.Reverse(list)
	s.page(w, r, http.StatusOK, "Working state "+stateName(st.ID(), st.Number()),
		h.P(h.Text(words.boundaries)), g.If(len(list) == 0, h.P(h.Class("say"), h.Text(words.noBoundaries))), g.If(len(list) > 0, boundaries(st, list)))
}

// boundaries is a table of the boundaries that a state can be rolled back to.
func boundaries(st *workstate.State, list []workstate.Checkpoint) g.Node {
	var rows []g.Node
	for _, c := range list {
		stands := "undone"
		switch {
		case c.Open:
			stands = "open"
		case c.Success:
			stands = "kept"
		}
		trace := g.Node(g.Group{})
		if id, err := tga.ParseID(c.TraceID); err == nil {
			trace = link(id)
		}
		rows = append(rows, h.Tr(
			h.Td(when(tga.MillisOf(c.Recorded))), h.Td(h.A(h.Class("id"), h.Href(statePath(st.ID(), st.Number())+"?call="+url.QueryEscape(c.ID)), text(c.ID))),
			h.Td(text(c.Kind)), h.Td(text(c.Name)), h.Td(text(stands)), h.Td(text(string(c.Code))), h.Td(h.Text(c.Elapsed.Round(time.Millisecond).String())), h.Td(trace)))
	}
	return table([]string{"Time", "Boundary", "Kind", "Name", "Changes", "Code", "Took", "Call"}, rows)
}

// boundary is what one boundary changed, and what a rollback to before it would do.
func (s *Server) boundary(w http.ResponseWriter, r *http.Request, st *workstate.State, call string) {
	ctx := r.Context()
	before, err := st.PreSnapshot(ctx, call)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	after, err := st.PostSnapshot(ctx, call)
	if errors.Is(err, tga.NotFound) {
		after, err = before, nil // the call did not succeed, so it changed nothing
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	plan, err := st.PlanRollback(ctx, call, workstate.RestoreOptions{})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	diff, err := difference(before, after)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	changed := workstate.Diff(before, after)
	s.page(w, r, http.StatusOK, "What "+clip.Clean(call)+" changed",
		h.P(h.A(h.Href(statePath(st.ID(), st.Number())), text("Working state "+stateName(st.ID(), st.Number())))),
		h.H2(h.Text("Before and after")), g.If(len(changed) == 0, h.P(h.Class("say"), h.Text(words.unchanged))), g.If(len(changed) > 0, changes(changed)), diff,
		h.H2(h.Text("Going back to before it")), planned(st, plan),
	)
}

// changes is a table of the parts in which two states differ.
func changes(list []workstate.Change) g.Node {
	var rows []g.Node
	for _, c := range list {
		items := ""
		if c.FromItems+c.ToItems > 0 {
			items = fmt.Sprintf("%d to %d", c.FromItems, c.ToItems)
		}
		rows = append(rows, h.Tr(h.Td(text(c.Part)), h.Td(h.Code(h.Text(c.From.String()[:12]))), h.Td(h.Code(h.Text(c.To.String()[:12]))), h.Td(h.Text(items))))
	}
	return table([]string{"Part", "Before", "After", "Items"}, rows)
}

// planned is what a rollback would do. The rollback itself needs the state's files, so it is made on the command line.
func planned(st *workstate.State, p *workstate.Plan) g.Node {
	undone := g.Node(h.P(h.Class("say"), h.Text(words.nothingUndone)))
	if len(p.Undone) > 0 {
		undone = boundaries(st, p.Undone)
	}
	restored := g.Node(g.Group{})
	if len(p.Restored) > 0 {
		restored = g.Group{h.H3(h.Text("Restored")), changes(p.Restored)}
	}
	return g.Group{
		restored, h.H3(h.Text("Undone, the newest first")), undone,
		g.If(len(p.Standing) > 0, g.Group{h.H3(h.Text("Effects outside that stand")), h.Ul(g.Map(p.Standing, func(e workstate.Standing) g.Node {
			return h.Li(text(e.Server + " " + e.Name + " " + e.ID))
		}))}),
		h.P(h.Text(words.rollback)), h.Pre(h.TabIndex("0"), text("tgad state rollback "+stateName(st.ID(), st.Number())+" "+clip.ShellWord(p.To.ID))),
	}
}

// difference shows how the JSON of two snapshots differs, line by line. It leaves out the lines before the first and
// after the last change.
func difference(before, after *workstate.CompositeSnapshot) (g.Node, error) {
	a, err := lines(before)
	if err != nil {
		return nil, err
	}
	b, err := lines(after)
	if err != nil {
		return nil, err
	}
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	end := 0
	for end < len(a)-same && end < len(b)-same && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	var rows g.Group
	for _, part := range []struct {
		mark, class string
		lines       []string
	}{{"- ", "gone", a[same : len(a)-end]}, {"+ ", "came", b[same : len(b)-end]}} {
		for i, line := range part.lines {
			if i == maxDiff {
				rows = append(rows, h.Span(h.Textf("… %d more lines\n", len(part.lines)-i)))
				break
			}
			rows = append(rows, h.Span(h.Class(part.class), text(part.mark+clip.Bytes(line, maxLine)), h.Text("\n")))
		}
	}
	if len(rows) == 0 {
		return g.Group{}, nil
	}
	return h.Pre(h.TabIndex("0"), rows), nil
}

// maxDiff limits the lines of each side of a difference.
const maxDiff = 200

// maxLine limits a line of a difference, in bytes.
const maxLine = 1 << 10

// lines are the lines of the JSON of a snapshot.
func lines(c *workstate.CompositeSnapshot) ([]string, error) {
	raw, err := c.ToJSON()
	if err != nil {
		return nil, err
	}
	var held struct {
		Resources json.RawMessage `json:"resources"`
		Session   struct {
			Slices json.RawMessage `json:"slices"`
		} `json:"session"`
	}
	if err := json.Unmarshal(raw, &held); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, part := range []json.RawMessage{held.Session.Slices, held.Resources} {
		if err := json.Indent(&b, part, "", "  "); err != nil {
			return nil, err
		}
		b.WriteByte('\n')
	}
	return strings.Split(b.String(), "\n"), nil
}
