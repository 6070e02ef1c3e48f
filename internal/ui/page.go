package ui

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"

	g "maragu.dev/gomponents"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/schemas/tga"
)

// page answers with a whole page.
func (s *Server) page(w http.ResponseWriter, r *http.Request, status int, title string, body ...g.Node) {
	s.render(w, status, h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")), h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			// Turn off the styles and the code that htmx would add: the page's policy forbids them.
			h.Meta(h.Name("htmx-config"), h.Content(`{"includeIndicatorStyles":false,"allowEval":false,"selfRequestsOnly":true,"historyCacheSize":0}`)),
			h.TitleEl(h.Text(title+" · tgad")), h.Link(h.Rel("stylesheet"), h.Href("/assets/ui.css")), h.Link(h.Rel("icon"), h.Href("/assets/icon.svg")),
			h.Script(h.Src("/assets/htmx.min.js"), h.Defer()), h.Script(h.Src("/assets/sse.min.js"), h.Defer()), h.Script(h.Src("/assets/ui.js"), h.Defer()), h.Script(h.Src("/assets/verify.js"), h.Defer()),
		),
		h.Body(g.If(!s.opts.ReadOnly, g.Attr("hx-ext", "sse")), g.If(!s.opts.ReadOnly, g.Attr("sse-connect", "/live")),
			h.A(h.Class("skip"), h.Href("#main"), h.Text("Skip to the content")),
			h.Header(h.Nav(h.Aria("label", "Views"),
				h.Strong(h.Text("tgad")), s.tabs(r),
			)),
			h.Main(h.ID("main"), h.H1(h.Text(title)), s.about(r), g.Group(body)),
			h.Footer(h.Text("tgad "+s.opts.Version)),
		),
	)))
}

// tabs are the links to the views.
func (s *Server) tabs(r *http.Request) g.Node {
	calls := "/traces"
	if s.opts.About != nil {
		calls += "?all=1" // most calls of a file are finished
	}
	tabs := g.Group{tab(r, "/", words.inbox), tab(r, calls, words.traces)}
	if s.kept != nil {
		tabs = append(tabs, tab(r, "/turns", words.turns), tab(r, "/states", words.states))
	}
	if !s.opts.ReadOnly {
		tabs = append(tabs, tab(r, "/store", words.store))
	}
	return tabs
}

func tab(r *http.Request, path, name string) g.Node {
	at, _, _ := strings.Cut(path, "?")
	return h.A(h.Href(path), g.If(r.URL.Path == at, h.Aria("current", "page")), h.Text(name))
}

// about says what is shown, if that is a file and not a store with a daemon.
func (s *Server) about(r *http.Request) g.Node {
	a := s.opts.About
	switch {
	case a == nil && s.opts.ReadOnly:
		return h.P(h.Class("say"), h.Text(words.readOnly))
	case a == nil && s.opts.Proxy != nil && !acts(r):
		return h.P(h.Class("say"), h.Text(words.stranger))
	case a == nil && s.opts.Proxy != nil:
		return h.P(h.Class("say"), h.Text(words.signedIn), text(of(r.Context()).name))
	case a == nil:
		return g.Group{}
	}
	fault := g.Node(g.Group{})
	if a.Fault != nil {
		fault = h.Div(h.Class("problem"), h.Role("alert"), h.P(h.Text(words.damaged)), h.P(text(a.Fault.Error())))
	}
	return g.Group{h.P(h.Class("say"), text(a.Words), h.Text(" "+words.readFile)), fault, sentences(words.proved, a.Proved), sentences(words.notProved, a.NotProved)}
}

// sentences is a collapsed list with a title.
func sentences(title string, lines []string) g.Node {
	if len(lines) == 0 {
		return g.Group{}
	}
	return h.Details(h.Summary(h.Text(title)), h.Ul(g.Map(lines, func(line string) g.Node { return h.Li(text(line)) })))
}

// render makes the whole page before it sends it, so that an error does not leave half a page.
func (s *Server) render(w http.ResponseWriter, status int, n g.Node) {
	var b bytes.Buffer
	if err := n.Render(&b); err != nil {
		s.opts.Logger.Error("a page cannot be made", "error", err)
		http.Error(w, "the page cannot be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	s.write(w, b.Bytes())
}

// fail answers with the daemon's error, and with the HTTP status of its code.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusBadGateway
	if info, known := tga.CodeOf(err).Info(); known { // a newer daemon may have a code that is not
		status = info.HTTPStatus
	}
	s.page(w, r, status, words.problem, problem(err))
}

func problem(err error) g.Node {
	return h.Div(h.Class("problem"), h.Role("alert"), text(err.Error()))
}

// text makes text of a log or an error harmless: it has no markup, and no character that reorders or hides text.
func text(s string) g.Node { return h.Text(clip.Clean(s)) }

// maxShown is how many bytes of a document a page shows.
const maxShown = 16 << 10

// show is a document as text. JSON is indented. For a document that is no text, it shows the size.
func show(data []byte) g.Node {
	if !utf8.Valid(data) {
		return h.Span(h.Class("dim"), h.Textf("%d bytes that are no text", len(data)))
	}
	cut := len(data) - maxShown
	if cut > 0 {
		data = data[:maxShown]
	}
	var flat bytes.Buffer
	if cut <= 0 && json.Indent(&flat, data, "", "  ") == nil {
		data = flat.Bytes()
	}
	lines := strings.Split(strings.ToValidUTF8(string(data), ""), "\n")
	for i := range lines {
		lines[i] = clip.Clean(lines[i])
	}
	return g.Group{h.Pre(h.TabIndex("0"), h.Text(strings.Join(lines, "\n"))), g.If(cut > 0, h.P(h.Class("dim"), h.Textf(words.cut, cut)))}
}

// when is a time. The browser shows it in its own time zone, and as an age.
func when(ts tga.Millis) g.Node {
	if ts == 0 {
		return h.Text("never")
	}
	return h.Time(h.DateTime(ts.Time().UTC().Format("2006-01-02T15:04:05.000Z")), h.Text(ts.String()))
}

func tool(server, name string) g.Node {
	if server == "" && name == "" {
		return h.Span(h.Class("dim"), h.Text("erased"))
	}
	return h.Strong(text(server + " " + name))
}

func link(id tga.ID) g.Node {
	return h.A(h.Class("id"), h.Href("/traces/"+id.String()), h.Text(id.String()))
}

func fact(name string, value g.Node) g.Node { return g.Group{h.Dt(h.Text(name)), h.Dd(value)} }
