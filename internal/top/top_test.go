package top

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/wire"
)

// scrape is a sample that was taken so many seconds after the first one.
func scrape(seconds int, text string) *Sample {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	s, err := Parse(time.Unix(1700000000+int64(seconds), 0).UTC(), []byte(text))
	if err != nil {
		panic(err)
	}
	return s
}

// TestRatesSurviveARestart: a counter that is smaller than before has begun anew.
func TestRatesSurviveARestart(t *testing.T) {
	before := scrape(0, "c 100\nd 5\n")
	for text, want := range map[string]float64{"c 104": 2, "c 100": 0, "c 3": 1.5} {
		if got := scrape(2, text).rate(before, "c"); got != want {
			t.Errorf("%s: %v a second, want %v", text, got, want)
		}
	}
	if got := scrape(2, "e 4").rate(before, "e"); got != 2 {
		t.Errorf("a counter that is new: %v", got)
	}
	if got := scrape(2, "").rate(before, "c"); !math.IsNaN(got) {
		t.Errorf("a counter that is gone: %v", got)
	}
}

func histogram(counts ...int) string {
	text := "# TYPE h histogram\n"
	for i, le := range []string{"0.001", "0.004", "0.016", "+Inf"} {
		text += fmt.Sprintf("h_bucket{server=\"a\",le=%q} %d\nh_bucket{server=\"b\",le=%q} 0\n", le, counts[i], le)
	}
	return text + fmt.Sprintf("h_count{server=\"a\"} %d\nh_count{server=\"b\"} 0\n", counts[3])
}

// TestQuantilesAreThoseOfTheBuckets: they count what was seen since the last sample, evenly within a bucket.
func TestQuantilesAreThoseOfTheBuckets(t *testing.T) {
	before := scrape(0, histogram(10, 10, 10, 10))
	for _, c := range []struct {
		now  string
		q    float64
		want float64
	}{
		{histogram(10, 20, 20, 20), 0.5, 0.0025}, {histogram(20, 20, 20, 20), 1, 0.001}, {histogram(20, 20, 20, 20), 0.5, 0.0005},
		{histogram(15, 15, 20, 20), 0.5, 0.001}, {histogram(15, 15, 20, 20), 0.75, 0.010},
		{histogram(10, 10, 10, 20), 0.5, 0.016}, // beyond the last bucket with an upper bound
		{histogram(10, 10, 10, 10), 0.5, math.NaN()},
		{histogram(0, 4, 4, 4), 0.5, 0.0025}, // after a restart
	} {
		if got := scrape(1, c.now).quantile(before, "h", c.q); math.Abs(got-c.want) > 1e-9 || math.IsNaN(got) != math.IsNaN(c.want) {
			t.Errorf("quantile %v of\n%s%v, want %v", c.q, c.now, got, c.want)
		}
	}
	if got := scrape(1, "").quantile(before, "h", 0.5); !math.IsNaN(got) {
		t.Errorf("of nothing: %v", got)
	}
}

// view is a frame of a daemon with n calls in doubt.
func view(n int) View {
	before := scrape(0, "tgad_calls_sent_total 100\nprocess_start_time_seconds 1.69999e+09\n")
	now := scrape(2, `tgad_ready 1
tgad_calls_sent_total 125
tgad_in_doubt 3
tgad_open_traces 7
tgad_approvals_pending 2
tgad_leases 4
tgad_disk_free_bytes 2147483648
tgad_disk_low_water_bytes 1073741824
tgad_log_bytes 1024
tgad_breakers_open{server="pay"} 2
tgad_breakers_open{server="mail"} 0
tgad_audit_lag{audit="siem"} 12
process_start_time_seconds 1.69999e+09
`)
	v := View{Where: "/run/s", Now: now, Before: before}
	for i := range n {
		t := wire.OpenTrace{ToolServer: "pay", ToolName: fmt.Sprint("charge", i), Doubt: &wire.Doubt{Licence: "park", Settles: []string{"resolve", "abandon"}}}
		if i%2 == 1 {
			t.Doubt.Licence = "probe"
		}
		v.Doubts = append(v.Doubts, t)
	}
	return v
}

// TestFrameSaysWhatTheMetricsSay: each number is in its place, with a dash if it is missing.
func TestFrameSaysWhatTheMetricsSay(t *testing.T) {
	text := strings.Join(Frame(view(3)), "\n")
	for _, want := range []string{
		"tgad /run/s  ready  up 2h46m42s", "calls sent             12.5          125", "served                    -            -",
		"open 7   in flight -   in doubt 3 (parked 2)   approvals 2   leases 4", "breakers open: pay 2\n", "audit appends behind: siem 12",
		"log 1.0 KiB   disk free 2.0 GiB   calls are begun down to 1.0 GiB", "resolve,abandon           pay/charge2",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for metric, want := range map[string]string{
		"tgad_store_frozen 1": "FROZEN", "tgad_store_quarantined 1": "QUARANTINED", "tgad_ready 0": "not ready", "": "not ready",
		"tgad_ready 1\ntgad_disk_free_bytes 1\ntgad_disk_low_water_bytes 2": "DISK NEARLY FULL",
	} {
		s := scrape(0, metric)
		if got := Frame(View{Now: s, Before: s})[0]; !strings.Contains(got, "  "+want+"  ") {
			t.Errorf("%q: %s, want %s", metric, got, want)
		}
	}
}

// TestFrameFitsTheTerminal: in every size; lines that do not fit are counted.
func TestFrameFitsTheTerminal(t *testing.T) {
	for width := 1; width < 130; width += 3 {
		for height := 1; height < 40; height++ {
			v := view(12)
			v.Width, v.Height = width, height
			lines := Frame(v)
			if len(lines) > height || len(lines) == 0 {
				t.Fatalf("%d lines in %d", len(lines), height)
			}
			for _, line := range lines {
				if utf8.RuneCountInString(line) > width {
					t.Fatalf("%q in %d", line, width)
				}
			}
		}
	}
	v := view(12)
	v.Width = 120
	whole := len(Frame(v))
	v.Height = whole
	if text := strings.Join(Frame(v), "\n"); strings.Contains(text, "more:") || !strings.Contains(text, "charge11") {
		t.Errorf("there is room for all:\n%s", text)
	}
	v.Height--
	if text := strings.Join(Frame(v), "\n"); !strings.Contains(text, "and 2 more: tgad in-doubt") || strings.Contains(text, "charge10") {
		t.Errorf("one line is missing:\n%s", text)
	}
}

// TestFrameIsHarmless: names with cursor movements do not move the cursor.
func TestFrameIsHarmless(t *testing.T) {
	v := view(1)
	v.Where = "/run/\x1b[2J"
	v.Doubts[0].ToolServer, v.Doubts[0].Doubt.Licence = "pay\x1b[H\n", "\x07park"
	v.Now = scrape(2, "tgad_breakers_open{server=\"a\\n\x1b[31m\"} 1\n")
	for _, line := range Frame(v) {
		if strings.ContainsAny(line, "\x1b\n\x07") {
			t.Errorf("%q", line)
		}
	}
}
