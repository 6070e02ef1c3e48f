package httpcall

import (
	"net/http"
	"strconv"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// RetryAfter returns how long a server asks to wait. The header has seconds or a date (RFC
// 9110 §10.2.3), or milliseconds in OpenAI's own header. It returns 0 if neither is there, and
// at most [tga.MaxRetryAfter].
func RetryAfter(h http.Header, now time.Time) time.Duration {
	for _, f := range [...]struct {
		name string
		unit time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		text := h.Get(f.name)
		if n, err := strconv.ParseFloat(text, 64); err == nil && n >= 0 {
			if n > float64(tga.MaxRetryAfter/f.unit) {
				return tga.MaxRetryAfter
			}
			return time.Duration(n * float64(f.unit))
		}
		if t, err := http.ParseTime(text); err == nil && f.unit == time.Second {
			return tga.BoundRetryAfter(t.Sub(now))
		}
	}
	return 0
}
