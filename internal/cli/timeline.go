package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// lineWidth is how wide a timeline is: it fits a terminal of 80 columns.
const lineWidth = 78

// Timeline prints a trace for people: one line for each step of [story.Of], and under it the details of
// that step. Long arguments and answers are cut; --json and export do not cut them.
func Timeline(w io.Writer, t *chain.Trace) error {
	var b bytes.Buffer
	p := &timeline{b: &b}
	p.head(t)
	for _, s := range story.Of(t) {
		p.line(s)
		for _, l := range s.Lines {
			if l.Name != "" || l.Data != nil {
				p.data(Clean(l.Name), l.Data)
			} else {
				p.b.WriteString(Wrap(Clean(l.Text), margin, lineWidth) + "\n")
			}
		}
	}
	fmt.Fprintf(p.b, "\nhead  %s\n", t.Head.Digest)
	_, err := w.Write(b.Bytes())
	return err
}

type timeline struct {
	b    *bytes.Buffer
	last tga.Millis
}

func (p *timeline) head(t *chain.Trace) {
	fmt.Fprintf(p.b, "trace %s  %s\n", t.ID, story.Standing(t))
	if t.Request == nil {
		return
	}
	q := t.Request.Request
	fmt.Fprintf(p.b, "%s %s", q.Proposal.ToolServer, q.Proposal.ToolName)
	if key := story.Key(t); key != "" {
		fmt.Fprintf(p.b, "  key %s", Shorten(Clean(key), 40))
	}
	if t.Namespace != tga.DefaultNamespace {
		fmt.Fprintf(p.b, "  namespace %s", Clean(t.Namespace))
	}
	if t.Deadline != 0 {
		fmt.Fprintf(p.b, "\ndeadline %s", t.Deadline)
	}
	p.b.WriteString("\n\n")
}

func (p *timeline) line(s story.Step) {
	when := s.TS.Time().Format("15:04:05.000")
	if p.last != 0 {
		when = "+" + since(p.last, s.TS)
	}
	p.last = s.TS
	fmt.Fprintf(p.b, "%4s  %-12s  %-10s  %-32s %s\n", s.Number, when, s.State, Clean(s.What), s.Digest.String()[:12])
}

// since is the time between two lines, in a form of at most ten characters.
func since(from, to tga.Millis) string {
	d := time.Duration(to-from) * time.Millisecond
	switch {
	case d < 0:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Hour:
		return fmt.Sprintf("%.3f s", d.Seconds())
	}
	return fmt.Sprintf("%.2f h", d.Hours())
}

const margin = "                    " // under the state column

// data prints a document on one line. What is not UTF-8 text is named by its size.
func (p *timeline) data(name string, data []byte) {
	text := fmt.Sprintf("%d bytes", len(data))
	if utf8.Valid(data) {
		var flat bytes.Buffer
		if json.Compact(&flat, data) == nil {
			data = flat.Bytes()
		}
		text = Clean(string(data))
	}
	p.b.WriteString(margin + Shorten(name+" "+text, lineWidth-len(margin)) + "\n")
}
