package message

import (
	"strings"
	"testing"
)

// BenchmarkRedact filters a tool's answer of 1 MiB in which no rule finds anything.
func BenchmarkRedact(b *testing.B) {
	c := compiled(b, Filter{Secrets: true, PII: allPII, Action: Redact})
	raw := []byte(`[` + strings.Repeat(`{"id":1234567,"name":"the quick brown fox","when":"2026-01-15T19:00:00.000Z"},`, 12600) + `{}]`)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, found, err := c.ApplyBytes(raw); err != nil || found != nil {
			b.Fatal(found, err)
		}
	}
}
