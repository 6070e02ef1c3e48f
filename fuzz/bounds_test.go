package fuzz

import (
	"runtime/metrics"
	"testing"
)

// most is what a decoder may allocate for one input, of at most a few KiB as the fuzzer
// makes them: memory follows from the size of an input, not from what it says of itself.
const most = 64 << 20

// bounded is body with a limit on what it allocates. What other goroutines allocate
// counts too; there are few in a fuzz worker.
func bounded[A any](body func(t *testing.T, in A)) func(t *testing.T, in A) {
	return func(t *testing.T, in A) {
		before := allocated()
		body(t, in)
		if n := allocated() - before; n > most {
			t.Fatalf("%d bytes are allocated for %.200v", n, in)
		}
	}
}

func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
