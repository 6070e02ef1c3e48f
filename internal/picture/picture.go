// Package picture draws the course of a call as an SVG image that needs no other file: its states from left to
// right, its attempts under them, and a line for each entry and note below. An attempt whose end is unknown is
// hatched.
//
//	harmless    text of the log is shown as text, never as mark-up           [Draw]  TestHostileNamesAreText
//	to scale    a longer wait is wider, but not in proportion: a call waits for microseconds and for days  [width]  TestLongerIsWider
//	bounded     of a trace with many notes the middle is left out, and named [shown]  TestMiddleOfALongTraceIsLeftOut
package picture

import (
	"fmt"
	"html"
	"math"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/schemas/tga"
)

// Sizes in pixels.
const (
	margin   = 16
	barAt    = 34 // top of the states
	barTall  = 26
	sendAt   = 68 // top of the attempts
	sendTall = 12
	tickAt   = 100
	textAt   = 124 // first line of text
	lineTall = 18
	least    = 22  // width of the shortest interval: two numbers side by side
	most     = 220 // width of the longest interval
	sinceAt  = 215 // columns of the lines of text
	wordsAt  = 290
)

// maxMoments is how many entries and notes are drawn at most: the first ones, and the [kept] newest.
const (
	maxMoments = 40
	kept       = 10
)

var colours = map[string]string{
	"PENDING": "#6b7280", "AUTHORIZED": "#2563eb", "EXECUTING": "#a16207", "COMPLETED": "#15803d", "FAILED": "#b91c1c", "DENIED": "#b91c1c",
}

// ends has the words and the colour for each end of an attempt.
var ends = map[story.End]struct{ words, fill string }{
	story.Unknown:  {"no answer yet", "url(#unknown)"},
	story.Answered: {"answered", "#15803d"},
	story.NotSent:  {"not sent", "#6b7280"},
	story.NoAnswer: {"no certain answer: it may have run", "url(#unknown)"},
	story.Gone:     {"its sender was gone: it may have run", "url(#unknown)"},
	story.Settled:  {"no answer, and settled afterwards", "url(#unknown)"},
}

// Namespace is the attribute that an image in a file of its own needs. Inside a page it is not needed.
const Namespace = ` xmlns="http://www.w3.org/2000/svg"`

// Draw draws a course. title is its heading.
func Draw(title string, c *story.Course) []byte {
	d := &drawing{Course: *c, title: title}
	d.place()
	d.begin()
	d.states()
	d.attempts()
	d.lines()
	d.b.WriteString("</svg>\n")
	return []byte(d.b.String())
}

type drawing struct {
	story.Course
	title string
	show  []int           // the moments that are drawn
	x     map[int]float64 // the place of each
	end   float64         // of the whole picture
	left  int             // number of moments that are left out after show[maxMoments-kept-1]
	b     strings.Builder
}

// shown returns the moments that are drawn, and how many are left out.
func shown(n int) (show []int, left int) {
	for i := range n {
		if n > maxMoments && i >= maxMoments-kept && i < n-kept {
			left++
			continue
		}
		show = append(show, i)
	}
	return show, left
}

// width returns the width of an interval of time. An interval ten times as long is a little wider.
func width(ms int64) float64 {
	return min(least+26*math.Log10(1+float64(max(ms, 0))), most)
}

func (d *drawing) place() {
	d.show, d.left = shown(len(d.Moments))
	d.x = map[int]float64{}
	at := float64(margin)
	for i, m := range d.show {
		if i > 0 {
			at += width(int64(d.Moments[m].TS - d.Moments[d.show[i-1]].TS))
		}
		d.x[m] = at
	}
	if d.Open {
		at += 90 // up to now; the reader's now is unknown, so the width is fixed
	} else {
		at += least
	}
	d.end = at
}

// at returns the place of a moment, or of the next moment that is drawn.
func (d *drawing) at(moment int) float64 {
	for _, m := range d.show {
		if m >= moment {
			return d.x[m]
		}
	}
	return d.end
}

// escaped returns text in a form that may be put between tags. [clip.Clean] escapes characters that XML cannot hold,
// such as a zero byte.
func escaped(s string) string { return html.EscapeString(clip.Clean(s)) }

func (d *drawing) printf(format string, a ...any) { fmt.Fprintf(&d.b, format, a...) }

func (d *drawing) begin() {
	longest := 7.5 * float64(len([]rune(d.title))) // upper bound of the average width of a letter
	for _, m := range d.show {
		longest = max(longest, wordsAt+7*float64(len([]rune(d.says(m)))))
	}
	wide := max(d.end, longest) + margin
	rows := len(d.show)
	if d.left > 0 {
		rows++
	}
	tall := textAt + rows*lineTall + margin/2
	d.printf(`<svg`+Namespace+` class="course" role="img" width="%.0f" height="%d" viewBox="0 0 %.0f %d" font-family="system-ui, sans-serif" font-size="12">`+"\n", wide, tall, wide, tall)
	d.printf("<title>%s</title>\n", escaped(d.title))
	d.b.WriteString(`<defs><pattern id="unknown" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="7" height="7" fill="#fde2e2"/><rect width="3" height="7" fill="#b91c1c"/></pattern>` +
		`<pattern id="served" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><rect width="7" height="7" fill="#e5e7eb"/><rect width="3" height="7" fill="#4b5563"/></pattern></defs>` + "\n")
	d.printf(`<rect class="ground" width="%.0f" height="%d" fill="#ffffff"/>`+"\n", wide, tall)
	d.text(margin, 20, "ink", "#1b1f24", d.title, `font-weight="600"`)
}

func (d *drawing) text(x, y float64, class, fill, s string, more ...string) {
	d.printf(`<text class="%s" x="%.1f" y="%.1f" fill="%s" %s>%s</text>`+"\n", class, x, y, fill, strings.Join(more, " "), escaped(s))
}

// bar draws an interval, with its name if there is room.
func (d *drawing) bar(from, to, y, tall float64, fill, name string) {
	d.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="3" fill="%s"><title>%s</title></rect>`+"\n", from, y, max(to-from, 2), tall, fill, escaped(name))
}

// states draws a bar for each state, up to the next state.
func (d *drawing) states() {
	for i, m := range d.Moments {
		if m.State == "" {
			continue
		}
		to, next := d.end, i+1
		for next < len(d.Moments) && d.Moments[next].State == "" {
			next++
		}
		if next < len(d.Moments) {
			to = d.at(next)
		}
		fill, name := colours[m.State], m.State
		switch {
		case d.Doubt && next == len(d.Moments):
			fill, name = "url(#unknown)", name+": in doubt unless running"
		case d.Served && m.State == "EXECUTING":
			fill, name = "url(#served)", name+": served from the record of another call"
		}
		from := d.at(i)
		d.bar(from, to, barAt, barTall, fill, name)
		if room := to - from; room > 8*float64(len(m.State)) && fill[0] == '#' {
			d.text(from+5, barAt+17, "on", "#ffffff", m.State)
		}
	}
}

// attempts draws a bar for each attempt, during which a request may have been on its way to the tool.
func (d *drawing) attempts() {
	for _, a := range d.Attempts {
		to := d.end
		if a.To >= 0 {
			to = d.at(a.To)
		}
		end := ends[a.End]
		d.bar(d.at(a.From), to, sendAt, sendTall, end.fill, fmt.Sprintf("attempt %d: %s", a.Number, end.words))
	}
}

// lines writes a numbered line for each moment, which says what it is.
func (d *drawing) lines() {
	y := float64(textAt)
	for i, m := range d.show {
		if d.left > 0 && m == len(d.Moments)-kept {
			d.text(margin+34, y, "dim", "#57606a", fmt.Sprintf("… %d more are not drawn …", d.left))
			y += lineTall
		}
		number := fmt.Sprint(m + 1)
		d.printf(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#9aa4b0"/>`+"\n", d.x[m], barAt-3, d.x[m], tickAt-12)
		d.text(d.x[m], tickAt, "ink", "#1b1f24", number, `text-anchor="middle"`, `font-size="10"`)
		since := ""
		if i > 0 {
			since = "+" + apart(d.Moments[m].TS-d.Moments[d.show[i-1]].TS)
		}
		d.text(margin, y, "dim", "#57606a", number)
		d.text(margin+34, y, "dim", "#57606a", d.Moments[m].TS.Time().UTC().Format(time.DateOnly+" 15:04:05.000"))
		d.text(sinceAt, y, "dim", "#57606a", since)
		d.text(wordsAt, y, "ink", "#1b1f24", d.says(m))
		y += lineTall
	}
}

// says describes a moment in words.
func (d *drawing) says(m int) string {
	words := []string{d.Moments[m].State}
	if note := d.Moments[m].Note; note != "" {
		words[0] = "note " + note
	}
	for _, a := range d.Attempts {
		switch m {
		case a.From:
			words = append(words, fmt.Sprintf("attempt %d may be sent from here on", a.Number))
		case a.To:
			words = append(words, fmt.Sprintf("attempt %d: %s", a.Number, ends[a.End].words))
		}
	}
	return strings.Join(words, " · ")
}

// apart formats the time between two moments. It is negative if the clock was set back.
func apart(ms tga.Millis) string {
	d := time.Duration(ms) * time.Millisecond
	if d >= time.Hour {
		d = d.Round(time.Minute)
	}
	return d.String()
}
