package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tgad/tgad/bench/internal/measure"
	"github.com/tgad/tgad/internal/report"
)

// plotBytes is the size of the artifacts that the plots of writes show.
const plotBytes = 1 << 10

// throughput is operations per second over the number of writers, a line for each case.
func throughput(lines []measure.Line) report.Lines {
	p := report.Lines{
		Title: "Operations per second, artifacts of 1 KiB, every one durable", Dots: true,
		X: report.Axis{Name: "writers", Log: true, Ticks: []float64{1, 16, 64, 256}}, Y: report.Axis{Name: "operations per second", Log: true},
	}
	for _, l := range lines {
		if l.Bytes != plotBytes || l.PerSec <= 0 || !strings.Contains(" limit append fused effect call call_http call_socket call_socket_batch ", " "+l.Case+" ") {
			continue
		}
		i := slices.IndexFunc(p.Lines, func(s report.Line) bool { return s.Name == l.Case })
		if i < 0 {
			i = len(p.Lines)
			p.Lines = append(p.Lines, report.Line{Name: l.Case})
		}
		at := [2]float64{float64(l.Writers), l.PerSec}
		if !slices.ContainsFunc(p.Lines[i].Points, func(other [2]float64) bool { return other[0] == at[0] }) {
			p.Lines[i].Points = append(p.Lines[i].Points, at)
		}
	}
	for _, l := range p.Lines {
		slices.SortFunc(l.Points, func(a, b [2]float64) int { return int(a[0] - b[0]) })
	}
	return p
}

// rows are a row for each line that has one of the figures.
func rows(lines []measure.Line, figures func(l measure.Line) []float64) (all []report.Row) {
	for _, l := range lines {
		if f := figures(l); slices.Max(f) > 0 {
			all = append(all, report.Row{Name: fmt.Sprintf("%s, %d × %d bytes", l.Case, l.Writers, l.Bytes), Figures: f})
		}
	}
	return all
}

// plots are those of a table.
func plots(lines []measure.Line) []report.Plot {
	return []report.Plot{
		throughput(lines),
		report.Rows{
			Title: "Ratio to the limit at as many writers and bytes", Base: 1, X: report.Axis{Name: "× the limit", Log: true}, Names: []string{"p50", "rate"},
			Rows: rows(lines, func(l measure.Line) []float64 { return []float64{l.P50Ratio, l.ThroughputRatio} }),
		},
		report.Rows{
			Title: "Latency of each case: writers × bytes", X: report.Axis{Name: "µs", Log: true}, Names: []string{"p50", "p99", "p999"},
			Rows: rows(lines, func(l measure.Line) []float64 { return []float64{l.P50, l.P99, l.P999} }),
		},
	}
}
