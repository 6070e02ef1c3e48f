package promtext

import (
	"maps"
	"math"
	"testing"
)

const text = `# TYPE tgad_appends_total counter
tgad_appends_total 12
tgad_appends_totally 7
# TYPE tgad_breakers_open gauge
tgad_breakers_open{server="} pay \" \\ {"} 3.5e+00
tgad_breakers_open{server="mail"} 1
# TYPE tgad_free gauge
tgad_free NaN
# TYPE tgad_log_sync_seconds histogram
tgad_log_sync_seconds_bucket{le="0.001"} 50
tgad_log_sync_seconds_bucket{le="0.004"} 98
tgad_log_sync_seconds_bucket{le="0.016"} 99
tgad_log_sync_seconds_bucket{le="+Inf"} 100
tgad_log_sync_seconds_sum 0.3
tgad_log_sync_seconds_count 100
# TYPE tgad_none_seconds histogram
tgad_none_seconds_bucket{le="1"} 0
tgad_none_seconds_bucket{le="+Inf"} 0
tgad_none_seconds_sum 0
tgad_none_seconds_count 0
`

func parsed(t *testing.T) Metrics {
	t.Helper()
	m, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestNumbersOfTheText: a name is not mistaken for a longer one that begins with it.
func TestNumbersOfTheText(t *testing.T) {
	m := parsed(t)
	for name, want := range map[string]float64{"tgad_appends_total": 12, "tgad_appends_totally": 7, "tgad_breakers_open": 4.5} {
		if n, err := m.Value(name); n != want || err != nil {
			t.Errorf("%s: %v %v, want %v", name, n, err, want)
		}
	}
	if n, err := m.Value("tgad_free"); !math.IsNaN(n) || err != nil {
		t.Errorf("%v %v", n, err)
	}
	for _, none := range []string{"tgad_appends", "", "tgad_log_sync_seconds", "tgad_log_sync_seconds_count"} {
		if n, err := m.Value(none); err == nil {
			t.Errorf("%q is %v", none, n)
		}
	}
	if got := m.By("tgad_breakers_open", "server"); !maps.Equal(got, map[string]float64{`} pay " \ {`: 3.5, "mail": 1}) {
		t.Errorf("%v", got)
	}
	for _, bad := range []string{"a x\n", "a{b 1\n", "{ 1\n", "a 1"} {
		if m, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, m)
		}
	}
}

// TestSharesLieWithinTheirBucket: at the edge of a bucket and one past it.
func TestSharesLieWithinTheirBucket(t *testing.T) {
	m := parsed(t)
	for q, want := range map[float64]float64{0.5: 0.001, 0.51: 0.004, 0.98: 0.004, 0.99: 0.016, 1: math.Inf(1)} {
		if got, n, err := m.Within("tgad_log_sync_seconds", q); got != want || n != 100 || err != nil {
			t.Errorf("%v: %v of %v, %v, want %v", q, got, n, err, want)
		}
	}
	if got, n, err := m.Within("tgad_none_seconds", 0.5); got != 0 || n != 0 || err != nil {
		t.Errorf("nothing observed: %v of %v, %v", got, n, err)
	}
	for _, none := range []string{"tgad_odd_seconds", "tgad_log_sync", "tgad_appends_total"} {
		if got, _, err := m.Within(none, 0.5); err == nil {
			t.Errorf("%s is %v", none, got)
		}
	}
}
