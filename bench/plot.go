package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tgad/tgad/bench/internal/measure"
)

// The plot: throughput over the number of writers at 1 KiB, one line per case, both axes
// logarithmic.
const (
	plotWidth, plotHeight = 720, 440
	plotLeft, plotRight   = 70, 150
	plotTop, plotBottom   = 40, 50
	plotBytes             = 1 << 10
)

var plotColours = []string{"#222222", "#1f6fb2", "#c2451e", "#2e8540", "#8a4fbd", "#b8860b", "#007f7f", "#a02060"}

// plot draws the lines as an SVG document.
func plot(lines []measure.Line) []byte {
	series := map[string][]measure.Line{}
	var names []string
	for _, l := range lines {
		if l.Bytes != plotBytes || l.PerSec <= 0 || !strings.Contains(" limit append fused effect call call_http call_socket call_socket_batch ", " "+l.Case+" ") {
			continue
		}
		if series[l.Case] == nil {
			names = append(names, l.Case)
		}
		if !slices.ContainsFunc(series[l.Case], func(m measure.Line) bool { return m.Writers == l.Writers }) {
			series[l.Case] = append(series[l.Case], l)
		}
	}
	maxRate, maxWriters := 10.0, 2.0
	minRate := math.Inf(1)
	for _, s := range series {
		for _, l := range s {
			maxRate, minRate = max(maxRate, l.PerSec), min(minRate, l.PerSec)
			maxWriters = max(maxWriters, float64(l.Writers))
		}
	}
	low, high := math.Floor(math.Log10(min(minRate, maxRate))), math.Ceil(math.Log10(maxRate))
	x := func(writers float64) float64 {
		return plotLeft + (plotWidth-plotLeft-plotRight)*math.Log2(writers)/math.Log2(maxWriters)
	}
	y := func(rate float64) float64 {
		return plotHeight - plotBottom - (plotHeight-plotTop-plotBottom)*(math.Log10(rate)-low)/max(high-low, 1)
	}

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="22" font-size="14">Operations per second, artifacts of 1 KiB, every one durable</text>`+"\n", plotLeft)
	for e := low; e <= high; e++ {
		at := y(math.Pow(10, e))
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			plotLeft, plotWidth-plotRight, at, at, plotLeft-6, at+4, thousands(math.Pow(10, e)))
	}
	for _, writers := range []float64{1, 16, 64, 256} {
		if writers <= maxWriters {
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.0f</text>`+"\n", x(writers), plotHeight-plotBottom+18, writers)
		}
	}
	fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">writers</text>`+"\n", x(math.Sqrt(maxWriters)), plotHeight-12)
	for i, name := range names {
		colour := plotColours[i%len(plotColours)]
		points := series[name]
		slices.SortFunc(points, func(a, b measure.Line) int { return a.Writers - b.Writers })
		var path []string
		for _, l := range points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", x(float64(l.Writers)), y(l.PerSec)))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x(float64(l.Writers)), y(l.PerSec), colour)
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/><text x="%d" y="%d" fill="%s">%s</text>`+"\n",
			strings.Join(path, " "), colour, plotWidth-plotRight+12, plotTop+12+18*i, colour, name)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

func thousands(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.0fM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.0fk", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}
