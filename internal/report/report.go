// Package report makes HTML pages in one file that need no daemon, no other file and no network: the page of a
// call, the measurements and the results of the crash tests.
//
//	alone      a page's policy allows only the style and the script inside the page                     [File]   TestPageIsAlone
//	harmless   a result is shown as text: neither markup, nor a character that turns or hides text      [text]   TestHostileWordsAreText
//	drawable   a figure that has no place on an axis is left out of a plot, and stays in the table      [Axis]   TestFiguresWithoutAPlace
package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"

	"github.com/tgad/tgad/internal/clip"
)

// Style is the style sheet of every page, including the web view's.
//
//go:embed style.css
var Style string

//go:embed plot.css
var plotStyle string

// Page is the content from which [File] makes a file.
type Page struct {
	Title  string
	Style  string
	Main   []g.Node // below the title
	Footer string
	Data   []byte // JSON without a "<" that the script reads, nil = none
	Script string // "" = none
}

// File makes the file.
func File(p Page) ([]byte, error) {
	scripts := "'none'"
	after := []g.Node{el("footer", text(p.Footer))}
	if p.Data != nil {
		after = append(after, el("script", attr("type", "application/json"), attr("id", "raw"), g.Raw(string(p.Data))))
	}
	if p.Script != "" {
		scripts = sourceOf(p.Script)
		after = append(after, el("script", g.Raw(p.Script)))
	}
	policy := fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; base-uri 'none'; form-action 'none'", sourceOf(p.Style), scripts)
	main := append([]g.Node{attr("id", "main"), el("h1", text(p.Title))}, p.Main...)
	page := el("html", attr("lang", "en"),
		el("head",
			el("meta", attr("charset", "utf-8")), el("meta", attr("name", "viewport"), attr("content", "width=device-width, initial-scale=1")),
			el("meta", attr("http-equiv", "Content-Security-Policy"), attr("content", policy)),
			el("title", text(p.Title+" · tgad")), el("style", g.Raw(p.Style)),
		),
		el("body", append([]g.Node{el("main", main...)}, after...)...),
	)
	b := bytes.NewBufferString("<!doctype html>")
	if err := page.Render(b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// sourceOf returns the source expression by which a policy allows exactly this style or script.
func sourceOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func el(name string, children ...g.Node) g.Node { return g.El(name, children...) }

func attr(name, value string) g.Node { return g.Attr(name, clip.Clean(value)) }

func text(s string) g.Node { return g.Text(clip.Clean(s)) }

// Section is a part of a report. Empty members are left out.
type Section struct {
	Heading  string
	Problems []string
	Say      []string
	Facts    [][2]string
	Plots    []Plot
	Tables   []Table
	Commands []string
	Folded   string // title of Lines, which are shown when the reader unfolds them
	Lines    []string
}

// Table has a header and rows. Columns of figures are aligned to the right.
type Table struct {
	Name string
	Rows [][]string // the first is the header
}

// Plot is a picture of figures.
type Plot interface {
	name() string
	draw() g.Node
}

// Of makes the file of a report.
func Of(title, footer string, sections []Section) ([]byte, error) {
	var main []g.Node
	for _, s := range sections {
		main = append(main, s.nodes()...)
	}
	return File(Page{Title: title, Style: Style + plotStyle, Main: main, Footer: footer})
}

func (s Section) nodes() (all []g.Node) {
	if s.Heading != "" {
		all = append(all, el("h2", text(s.Heading)))
	}
	for _, p := range s.Problems {
		all = append(all, el("div", attr("class", "problem"), text(p)))
	}
	for _, p := range s.Say {
		all = append(all, el("p", text(p)))
	}
	if len(s.Facts) > 0 {
		var facts []g.Node
		for _, f := range s.Facts {
			facts = append(facts, el("dt", text(f[0])), el("dd", text(f[1])))
		}
		all = append(all, el("dl", facts...))
	}
	for _, p := range s.Plots {
		all = append(all, wide(p.name(), p.draw()))
	}
	for _, t := range s.Tables {
		if len(t.Rows) > 0 {
			all = append(all, wide(t.Name, t.node()))
		}
	}
	if len(s.Commands) > 0 {
		all = append(all, el("pre", attr("tabindex", "0"), lines(s.Commands)))
	}
	if len(s.Lines) > 0 {
		all = append(all, el("details", el("summary", text(s.Folded)), el("pre", attr("tabindex", "0"), lines(s.Lines))))
	}
	return all
}

// lines are text of several lines.
func lines(all []string) g.Node {
	clean := make([]string, len(all))
	for i, l := range all {
		clean[i] = clip.Clean(l)
	}
	return g.Text(strings.Join(clean, "\n"))
}

// wide wraps a node that a narrow window scrolls sideways, also by keyboard.
func wide(name string, n g.Node) g.Node {
	return el("div", attr("class", "wide"), attr("tabindex", "0"), attr("role", "region"), attr("aria-label", name), n)
}

func (t Table) node() g.Node {
	var body []g.Node
	for _, row := range t.Rows[1:] {
		var cells []g.Node
		for i, c := range row {
			cells = append(cells, cell("td", i < len(t.Rows[0]) && t.figures(i), c))
		}
		body = append(body, el("tr", cells...))
	}
	var header []g.Node
	for i, c := range t.Rows[0] {
		header = append(header, cell("th", t.figures(i), c, attr("scope", "col")))
	}
	return el("table", el("caption", text(t.Name)), el("thead", el("tr", header...)), el("tbody", body...))
}

func cell(name string, figure bool, s string, more ...g.Node) g.Node {
	if figure {
		more = append(more, attr("class", "n"))
	}
	return el(name, append(more, text(s))...)
}

// figures reports whether a column has only figures.
func (t Table) figures(column int) bool {
	for _, row := range t.Rows[1:] {
		if column < len(row) && row[column] != "" {
			if _, err := strconv.ParseFloat(strings.ReplaceAll(row[column], ",", ""), 64); err != nil {
				return false
			}
		}
	}
	return len(t.Rows) > 1
}

// Grouped formats a whole number with a comma between groups of three digits.
func Grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
