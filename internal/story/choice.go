package story

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// Choice selects calls in doubt, of which there can be many after an outage. The zero value of a member
// selects all.
type Choice struct {
	Tool          string // SERVER or SERVER/TOOL
	Namespace     string
	Cause         string // a part of it
	Since, Before tga.Millis
}

// Of returns the chosen calls, the oldest first.
func (c Choice) Of(all []wire.OpenTrace) []wire.OpenTrace {
	server, name, one := strings.Cut(c.Tool, "/")
	list := slices.DeleteFunc(slices.Clone(all), func(t wire.OpenTrace) bool {
		at, cause := t.Since, ""
		if t.Doubt != nil {
			at, cause = t.Doubt.Since, t.Doubt.Cause
		}
		return c.Tool != "" && t.ToolServer != server || one && t.ToolName != name ||
			c.Namespace != "" && t.Namespace != c.Namespace || !strings.Contains(cause, c.Cause) ||
			c.Since != 0 && at < c.Since || c.Before != 0 && at >= c.Before
	})
	slices.SortStableFunc(list, func(a, b wire.OpenTrace) int { return cmp.Compare(a.Since, b.Since) })
	return list
}

// Fill returns a text with {key} and {trace} replaced by those of the call.
func Fill(text string, t wire.OpenTrace) string {
	return strings.NewReplacer("{key}", t.IdempotencyKey, "{trace}", t.TraceID.String()).Replace(text)
}

// ParseTime reads a point in time, or a duration such as 2h, which means that long before now. It returns 0
// for "".
func ParseTime(s string, now time.Time) (tga.Millis, error) {
	if s == "" {
		return 0, nil
	}
	if ago, err := time.ParseDuration(s); err == nil && ago > 0 {
		return tga.MillisOf(now.Add(-ago)), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return 0, tga.Errorf(tga.ValidationError, "%.80q: want a time such as 2026-01-31T12:00:00Z, or a duration such as 2h", s)
	}
	return tga.MillisOf(t), nil
}
