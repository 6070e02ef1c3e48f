//go:build unix

package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/tgad/tgad/internal/cli"
)

// printer prints the demo's story: text for people, or one JSON object a line. It
// keeps count of the claims.
type printer struct {
	w      io.Writer
	json   bool
	colour bool

	part   int
	claims []Claim
}

// Claim is one statement that the demo checks, and what was seen.
type Claim struct {
	Part int    `json:"part"`
	Text string `json:"claim"`
	OK   bool   `json:"ok"`
	Seen string `json:"seen,omitempty"`
}

func (p *printer) line(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("demo: print %T: %v", v, err)) // our own structs
	}
	_, _ = p.w.Write(append(b, '\n')) // the reader may be gone: | head
}

// text prints a line of the story; it is not part of the JSON form.
func (p *printer) text(format string, args ...any) {
	if !p.json {
		_, _ = fmt.Fprintf(p.w, format+"\n", args...) // as above
	}
}

// title begins a part.
func (p *printer) title(text string) {
	p.part++
	p.text("\n%s", p.bold(fmt.Sprintf("%d  %s", p.part, text)))
}

// step prints who did what.
func (p *printer) step(who, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if p.json {
		p.line(struct {
			Part int    `json:"part"`
			Who  string `json:"who"`
			What string `json:"what"`
		}{p.part, who, what})
		return
	}
	for i, l := range strings.Split(what, "\n") {
		if i > 0 {
			who = ""
		}
		p.text("   %-9s %s", who, l)
	}
}

// quote prints the output of a command, indented. Long lines about faults are wrapped.
func (p *printer) quote(output string) {
	const indent, width, most = "   ", 80, 300
	for _, l := range strings.Split(strings.TrimRight(output, "\n"), "\n") {
		if strings.HasPrefix(l, "FAULT") || strings.HasPrefix(l, "tgad: ") {
			l = cli.Wrap(cli.Shorten(l, most), "", width-len(indent))
		}
		for _, l := range strings.Split(l, "\n") {
			p.text("%s", strings.TrimRight(indent+p.dim(l), " "))
		}
	}
}

// claim records whether a statement of the demo is true.
func (p *printer) claim(ok bool, text, seenFormat string, args ...any) {
	c := Claim{Part: p.part, Text: text, OK: ok, Seen: fmt.Sprintf(seenFormat, args...)}
	p.claims = append(p.claims, c)
	if p.json {
		p.line(c)
		return
	}
	mark := p.paint("32", "ok  ")
	if !ok {
		mark = p.paint("31", "FAIL")
		text += "  (" + c.Seen + ")"
	}
	p.text(" %s %s", mark, text)
}

func (p *printer) failed() int {
	n := 0
	for _, c := range p.claims {
		if !c.OK {
			n++
		}
	}
	return n
}

func (p *printer) bold(s string) string { return p.paint("1", s) }
func (p *printer) dim(s string) string  { return p.paint("2", s) }

func (p *printer) paint(sgr, s string) string {
	if !p.colour {
		return s
	}
	return "\x1b[" + sgr + "m" + s + "\x1b[0m"
}
