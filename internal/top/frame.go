package top

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// View is what one frame shows.
type View struct {
	Where       string // the socket
	Now, Before *Sample
	Doubts      []wire.OpenTrace
	Width       int // of the terminal; 0 is any
	Height      int
}

// rows are the counters that a frame shows, with their texts.
var rows = []struct{ text, name string }{
	{"calls sent", "tgad_calls_sent_total"},
	{"  of them again", "tgad_calls_resent_total"},
	{"served", "tgad_calls_served_total"},
	{"refused", "tgad_calls_refused_total"},
	{"denied", "tgad_calls_denied_total"},
	{"new doubts", "tgad_calls_doubts_total"},
	{"appends", "tgad_appends_total"},
	{"syncs", "tgad_log_syncs_total"},
}

// times are the histograms that a frame shows.
var times = []struct{ text, name string }{
	{"sync", "tgad_log_sync_seconds"},
	{"append", "tgad_append_seconds"},
	{"send", "tgad_send_seconds"},
}

// Frame returns the lines of a frame.
func Frame(v View) []string {
	now, before := v.Now, v.Before
	lines := []string{
		fmt.Sprintf("tgad %s  %s  up %s  %s", clip.Clean(v.Where), state(now), uptime(now), tga.MillisOf(now.at)),
		"",
		fmt.Sprintf("%-16s %10s %12s      %-8s %9s %9s %9s", "", "a second", "in all", "", "p50", "p99", "a second"),
	}
	for i, r := range rows {
		line := fmt.Sprintf("%-16s %10s %12s", r.text, number(now.rate(before, r.name), 1), number(now.sum(r.name), 0))
		if i < len(times) {
			h := times[i]
			line += fmt.Sprintf("      %-8s %9s %9s %9s", h.text, span(now.quantile(before, h.name, 0.5)), span(now.quantile(before, h.name, 0.99)), number(now.rate(before, h.name), 1))
		}
		lines = append(lines, line)
	}
	parked := 0
	for i := range v.Doubts {
		if d := v.Doubts[i].Doubt; d != nil && d.Licence == "park" {
			parked++
		}
	}
	count := func(name string) string { return number(now.sum(name), 0) }
	lines = append(lines, "",
		fmt.Sprintf("open %s   in flight %s   in doubt %s (parked %d)   approvals %s   leases %s   streams %s",
			count("tgad_open_traces"), count("tgad_calls_in_flight"), count("tgad_in_doubt"), parked, count("tgad_approvals_pending"), count("tgad_leases"), count("tgad_streams")),
		"breakers open: "+named(now, "tgad_breakers_open", "server"),
		"audit appends behind: "+named(now, "tgad_audit_lag", "audit"),
		"seconds that notices are late: "+named(now, "tgad_notify_late_seconds", "notify"),
		fmt.Sprintf("log %s   disk free %s   calls are begun down to %s", size(now.sum("tgad_log_bytes")), size(now.sum("tgad_disk_free_bytes")), size(now.sum("tgad_disk_low_water_bytes"))),
	)
	lines = append(lines, doubts(v, v.Height-len(lines))...)
	for i := range lines {
		lines[i] = fit(lines[i], v.Width)
	}
	if v.Height > 0 && len(lines) > v.Height {
		lines = lines[:v.Height]
	}
	return lines
}

// doubts lists calls in doubt, at most as many as fit into room lines. A negative room means no limit.
func doubts(v View, room int) []string {
	if len(v.Doubts) == 0 {
		return nil
	}
	lines := []string{"", fmt.Sprintf("%-36s  %-24s  %-12s  %-24s  %s", "IN DOUBT", "SINCE", "LICENCE", "SETTLED BY", "TOOL")}
	show := v.Doubts
	if most := room - len(lines); v.Height > 0 && len(show) > most {
		show = show[:max(0, most-1)]
	}
	for i := range show {
		t := &show[i]
		since, licence, by := t.Since, "", ""
		if d := t.Doubt; d != nil {
			since, licence, by = d.Since, d.Licence, strings.Join(d.Settles, ",")
		}
		lines = append(lines, fmt.Sprintf("%-36s  %-24s  %-12s  %-24s  %s", t.TraceID, since, clip.Clean(licence), clip.Clean(by), clip.Clean(t.ToolServer+"/"+t.ToolName)))
	}
	if rest := len(v.Doubts) - len(show); rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d more: tgad in-doubt", rest))
	}
	return lines
}

// state says what blocks all calls, if anything does.
func state(s *Sample) string {
	switch {
	case s.sum("tgad_store_frozen") == 1:
		return "FROZEN"
	case s.sum("tgad_store_quarantined") == 1:
		return "QUARANTINED"
	case s.sum("tgad_ready") != 1:
		return "not ready"
	case s.sum("tgad_disk_free_bytes") < s.sum("tgad_disk_low_water_bytes"):
		return "DISK NEARLY FULL"
	}
	return "ready"
}

func uptime(s *Sample) string {
	began := s.sum("process_start_time_seconds")
	if math.IsNaN(began) {
		return "-"
	}
	return max(0, s.at.Sub(time.Unix(0, int64(began*1e9)))).Truncate(time.Second).String()
}

// named lists the labels whose value is not 0, each with its value.
func named(s *Sample, name, by string) string {
	var all []string
	of := s.of.By(name, by)
	for _, label := range slices.Sorted(maps.Keys(of)) {
		if of[label] != 0 {
			all = append(all, clip.Clean(label)+" "+number(of[label], 0))
		}
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// number formats a number with so many digits after the point, "-" if it is unknown.
func number(f float64, digits int) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, f)
}

// span formats a time in a suitable unit.
func span(seconds float64) string {
	switch {
	case math.IsNaN(seconds):
		return "-"
	case seconds < 1e-3:
		return fmt.Sprintf("%.0f µs", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.1f ms", seconds*1e3)
	}
	return fmt.Sprintf("%.1f s", seconds)
}

// size formats a number of bytes in a suitable unit.
func size(bytes float64) string {
	if math.IsNaN(bytes) {
		return "-"
	}
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if bytes < 1024 {
			return fmt.Sprintf("%.1f %s", bytes, unit)
		}
		bytes /= 1024
	}
	return fmt.Sprintf("%.1f TiB", bytes)
}

// fit cuts a line to a width, 0 is any.
func fit(line string, width int) string {
	line = strings.TrimRight(line, " ")
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width])
}
