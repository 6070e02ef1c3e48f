//go:build !jcsagrees

package tga

import (
	"runtime"
	"strings"
	"testing"
)

// TestMemoryIsBoundedByTheText: reading a text needs memory for its bytes, not a multiple of them, however
// many values it has.
func TestMemoryIsBoundedByTheText(t *testing.T) {
	const size = 4 << 20
	long := map[string]string{
		"canonical":  `{"a":[` + strings.Repeat("1,", size/2) + `1]}`,
		"spaced":     `{"a":[` + strings.Repeat("1, ", size/3) + `1]}`,
		"nested":     `{"a":[` + strings.Repeat("[],", size/3) + `1]}`,
		"objects":    `{"a":[` + strings.Repeat("{},", size/3) + `1]}`,
		"out order":  `{"a":[` + strings.Repeat(`{"b":1,"a":1},`, size/14) + `1]}`,
		"text ended": `{"a":[` + strings.Repeat("1,", size/2) + `x]}`,
	}
	for name, text := range long {
		raw := []byte(text)
		for what, c := range map[string]struct {
			read func()
			most uint64 // times the length of the text
		}{
			"gate":     {func() { _ = Gate(raw, Limits{}) }, 0},
			"members":  {func() { _ = Members(raw, func(_, _ []byte) error { return nil }) }, 0},
			"elements": {func() { _ = Elements(raw[5:len(raw)-1], func([]byte) error { return nil }) }, 0},
			"form":     {func() { _, _ = Canonicalize(raw, Limits{}) }, 1},
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c.read()
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > c.most*size+size/4 {
				t.Errorf("%s of %s: %d bytes for %d", what, name, took, len(raw))
			}
		}
	}
}
