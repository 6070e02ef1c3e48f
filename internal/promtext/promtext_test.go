package promtext

import (
	"math"
	"testing"
)

const text = `# TYPE tgad_appends_total counter
tgad_appends_total 12
tgad_appends_totally 7
tgad_broken x
# TYPE tgad_log_sync_seconds histogram
tgad_log_sync_seconds_bucket{le="0.001"} 50
tgad_log_sync_seconds_bucket{le="0.004"} 98
tgad_log_sync_seconds_bucket{le="0.016"} 99
tgad_log_sync_seconds_bucket{le="+Inf"} 100
tgad_log_sync_seconds_sum 0.3
tgad_log_sync_seconds_count 100
tgad_none_seconds_bucket{le="1"} 0
tgad_none_seconds_bucket{le="+Inf"} 0
tgad_odd_seconds_bucket{le="1"} x
`

// TestNumbersOfTheText: a name is not taken for one that begins with it.
func TestNumbersOfTheText(t *testing.T) {
	if n, err := Text(text).Value("tgad_appends_total"); n != 12 || err != nil {
		t.Errorf("%v %v", n, err)
	}
	for _, none := range []string{"tgad_appends", "tgad_broken", ""} {
		if n, err := Text(text).Value(none); err == nil {
			t.Errorf("%q is %v", none, n)
		}
	}
}

// TestSharesLieWithinTheirBucket: at the edge of a bucket and one past it.
func TestSharesLieWithinTheirBucket(t *testing.T) {
	for q, want := range map[float64]float64{0.5: 0.001, 0.51: 0.004, 0.98: 0.004, 0.99: 0.016, 1: math.Inf(1)} {
		if got, n, err := Text(text).Within("tgad_log_sync_seconds", q); got != want || n != 100 || err != nil {
			t.Errorf("%v: %v of %v, %v, want %v", q, got, n, err, want)
		}
	}
	if got, n, err := Text(text).Within("tgad_none_seconds", 0.5); got != 0 || n != 0 || err != nil {
		t.Errorf("nothing observed: %v of %v, %v", got, n, err)
	}
	for _, none := range []string{"tgad_odd_seconds", "tgad_log_sync", "tgad_appends_total"} {
		if got, _, err := Text(text).Within(none, 0.5); err == nil {
			t.Errorf("%s is %v", none, got)
		}
	}
}
