package report

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	g "maragu.dev/gomponents"
)

// Sizes in pixels.
const (
	plotWidth, plotHeight = 720, 400
	plotLeft, plotRight   = 80, 150
	plotTop, plotBottom   = 40, 50
	rowTall, rowNames     = 16, 250
	letter                = 7 // upper bound of the average width of a letter
)

// colours are the colours of an image in a file of its own. In a page, the style sheet sets them, also for dark mode.
var (
	colours = []string{"#222222", "#1f6fb2", "#c2451e", "#2e8540", "#8a4fbd", "#b8860b", "#007f7f", "#a02060"}
	dashes  = []string{"", "7 3", "2 3", "9 3 2 3"} // so that lines differ for people who do not see the colours
)

// Axis is a direction of a plot.
type Axis struct {
	Name  string
	Log   bool
	Ticks []float64 // nil = chosen automatically
}

// has reports whether a figure has a place on the axis.
func (a Axis) has(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!a.Log || v > 0)
}

// scale is an axis with the figures that it has to show.
type scale struct {
	Axis
	low, high float64 // logarithms on a logarithmic axis
	from, to  float64 // pixels
}

func (a Axis) over(values []float64, from, to float64) scale {
	s := scale{Axis: a, low: math.Inf(1), high: math.Inf(-1), from: from, to: to}
	for _, v := range values {
		if a.has(v) {
			s.low, s.high = min(s.low, s.of(v)), max(s.high, s.of(v))
		}
	}
	switch {
	case s.low > s.high:
		s.low, s.high = 0, 1
	case a.Log && a.Ticks == nil:
		s.low, s.high = math.Floor(s.low), math.Ceil(s.high)
	case !a.Log:
		s.low = min(s.low, 0)
	}
	if s.low == s.high {
		s.high++
	}
	return s
}

func (s scale) of(v float64) float64 {
	if s.Log {
		return math.Log10(v)
	}
	return v
}

func (s scale) at(v float64) float64 {
	return s.from + (s.to-s.from)*(s.of(v)-s.low)/(s.high-s.low)
}

func (s scale) ticks() (all []float64) {
	if s.Ticks != nil {
		for _, v := range s.Ticks {
			if s.has(v) && s.of(v) >= s.low && s.of(v) <= s.high {
				all = append(all, v)
			}
		}
		return all
	}
	if s.Log {
		for e := s.low; e <= s.high; e += max(1, math.Floor((s.high-s.low)/8)) {
			all = append(all, math.Pow(10, e))
		}
		return all
	}
	step := math.Pow(10, math.Floor(math.Log10(s.high-s.low)))
	for _, part := range []float64{0.1, 0.2, 0.5, 1} {
		if (s.high-s.low)/(step*part) <= 8 {
			step *= part
			break
		}
	}
	for v := math.Ceil(s.low/step) * step; v <= s.high+step/1e6; v += step {
		all = append(all, v)
	}
	return all
}

// short formats a figure for an axis.
func short(v float64) string {
	for _, unit := range []struct {
		of   float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= unit.of {
			return fmt.Sprintf("%.3g%s", v/unit.of, unit.name)
		}
	}
	return fmt.Sprintf("%.3g", v)
}

// Line is a series of points.
type Line struct {
	Name   string
	Points [][2]float64
}

// Lines are series over two axes. Marks are marked places on the first axis.
type Lines struct {
	Title    string
	X, Y     Axis
	Lines    []Line
	Marks    []float64
	MarkName string
	Dots     bool // each point has one
}

func (p Lines) name() string { return p.Title }

func (p Lines) draw() g.Node {
	var xs, ys []float64
	for _, l := range p.Lines {
		for _, at := range l.Points {
			if p.X.has(at[0]) && p.Y.has(at[1]) {
				xs, ys = append(xs, at[0]), append(ys, at[1])
			}
		}
	}
	x, y := p.X.over(xs, plotLeft, plotWidth-plotRight), p.Y.over(ys, plotHeight-plotBottom, plotTop)
	c := &canvas{}
	for _, v := range y.ticks() {
		c.line("grid", "#dddddd", x.from, y.at(v), x.to, y.at(v))
		c.text(x.from-6, y.at(v)+4, "end", "dim", short(v))
	}
	for _, v := range x.ticks() {
		c.text(x.at(v), y.from+18, "middle", "dim", short(v))
	}
	c.text((x.from+x.to)/2, plotHeight-8, "middle", "ink", p.X.Name)
	for _, v := range p.Marks {
		if x.has(v) && x.of(v) >= x.low && x.of(v) <= x.high {
			c.line("mark", "#888888", x.at(v), y.from, x.at(v), y.from+6)
		}
	}
	legend := plotTop + 12.0
	for i, l := range p.Lines {
		var points []string
		for _, at := range l.Points {
			if !x.has(at[0]) || !y.has(at[1]) {
				continue
			}
			points = append(points, fmt.Sprintf("%.1f,%.1f", x.at(at[0]), y.at(at[1])))
			if p.Dots {
				c.shape(i, x.at(at[0]), y.at(at[1]), "")
			}
		}
		c.poly(i, strings.Join(points, " "))
		c.poly(i, fmt.Sprintf("%.0f,%.0f %.0f,%.0f", x.to+12, legend-4, x.to+36, legend-4))
		c.text(x.to+42, legend, "start", "ink", l.Name)
		legend += 18
	}
	if len(p.Marks) > 0 {
		c.text(x.to+12, legend, "start", "dim", "╷ "+p.MarkName)
	}
	return c.svg(p.Title+"; "+p.Y.Name, plotWidth, plotHeight)
}

// Row is a row of [Rows]: a figure for each of the names.
type Row struct {
	Name    string
	Figures []float64
}

// Rows are figures of many things, one below the other, over one axis. Base is the value to compare them with.
type Rows struct {
	Title string
	X     Axis
	Names []string
	Rows  []Row
	Base  float64 // 0 = none
}

func (p Rows) name() string { return p.Title }

func (p Rows) draw() g.Node {
	values := []float64{}
	names := 0
	for _, r := range p.Rows {
		values, names = append(values, r.Figures...), max(names, len([]rune(r.Name)))
	}
	if p.Base != 0 {
		values = append(values, p.Base)
	}
	left := float64(min(names*letter+20, 2*rowNames))
	x := p.X.over(values, left, left+plotWidth-rowNames)
	top := float64(plotTop + 24)
	bottom := top + float64(len(p.Rows)*rowTall)
	c := &canvas{}
	at := x.from
	for i, name := range p.Names {
		c.shape(i+1, at, plotTop, "")
		c.text(at+10, plotTop+4, "start", "ink", name)
		at += float64(len([]rune(name))*letter + 34)
	}
	for _, v := range x.ticks() {
		c.line("grid", "#dddddd", x.at(v), top-8, x.at(v), bottom)
		c.text(x.at(v), bottom+16, "middle", "dim", short(v))
	}
	if x.has(p.Base) && p.Base != 0 {
		c.line("mark", "#888888", x.at(p.Base), top-8, x.at(p.Base), bottom)
	}
	c.text((x.from+x.to)/2, bottom+36, "middle", "ink", p.X.Name)
	for n, r := range p.Rows {
		y := top + float64(n*rowTall) + 4
		c.text(left-8, y+4, "end", "ink", r.Name)
		var there []float64
		for i, v := range r.Figures {
			if x.has(v) {
				there = append(there, x.at(v))
				c.shape(i+1, x.at(v), y, fmt.Sprintf("%s, %s: %s", r.Name, p.Names[i], short(v)))
			}
		}
		if len(there) > 1 {
			c.line("grid", "#dddddd", slices.Min(there), y, slices.Max(there), y)
		}
	}
	return c.svg(p.Title, x.to+40, bottom+48)
}

// canvas takes the elements of a picture.
type canvas struct{ all []g.Node }

func px(v float64) string { return fmt.Sprintf("%.1f", v) }

func (c *canvas) line(class, stroke string, x1, y1, x2, y2 float64) {
	c.all = append(c.all, el("line", attr("class", class), attr("stroke", stroke), attr("x1", px(x1)), attr("y1", px(y1)), attr("x2", px(x2)), attr("y2", px(y2))))
}

func (c *canvas) text(x, y float64, anchor, class, s string) {
	c.all = append(c.all, el("text", attr("class", class), attr("x", px(x)), attr("y", px(y)), attr("text-anchor", anchor), text(s)))
}

func (c *canvas) poly(series int, points string) {
	c.all = append(c.all, el("polyline", attr("class", seriesOf(series)), attr("points", points), attr("fill", "none"), attr("stroke", colours[series%len(colours)]),
		attr("stroke-width", "1.5"), attr("stroke-dasharray", dashes[series%len(dashes)])))
}

// shapes are around 0,0.
var shapes = []string{"M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0", "M-3-3h6v6h-6z", "M0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5z", "M0-4l4 7h-8z"}

func (c *canvas) shape(series int, x, y float64, says string) {
	c.all = append(c.all, el("path", attr("class", seriesOf(series)), attr("d", shapes[series%len(shapes)]), attr("fill", colours[series%len(colours)]),
		attr("transform", "translate("+px(x)+" "+px(y)+")"), g.If(says != "", el("title", text(says)))))
}

func seriesOf(n int) string { return fmt.Sprint("s", n%len(colours)) }

func (c *canvas) svg(title string, wide, tall float64) g.Node {
	wide = max(wide, float64(len([]rune(title))*letter+2*plotLeft))
	size := fmt.Sprintf("0 0 %.0f %.0f", wide, tall)
	return el("svg", append([]g.Node{
		attr("class", "plot"), attr("role", "img"), attr("viewBox", size), attr("width", fmt.Sprintf("%.0f", wide)), attr("height", fmt.Sprintf("%.0f", tall)),
		attr("font-family", "system-ui, sans-serif"), attr("font-size", "12"),
		el("title", text(title)), el("rect", attr("class", "ground"), attr("width", "100%"), attr("height", "100%"), attr("fill", "#ffffff")),
		el("text", attr("x", fmt.Sprint(16)), attr("y", "20"), attr("font-size", "14"), text(title)),
	}, c.all...)...)
}

// SVG returns a plot as an image for a file of its own.
func SVG(p Plot) ([]byte, error) {
	var b bytes.Buffer
	if err := p.draw().Render(&b); err != nil {
		return nil, err
	}
	// Only a file of its own needs the name space.
	return append(bytes.Replace(b.Bytes(), []byte("<svg "), []byte(`<svg xmlns="http://www.w3.org/2000/svg" `), 1), '\n'), nil
}
