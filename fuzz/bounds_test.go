package fuzz

import (
	"runtime/metrics"
	"testing"
)

// most is how many bytes a decoder may allocate for one input. The fuzzer makes inputs of at most a few KiB.
// Memory must follow from the size of an input, not from a length that the input states.
const most = 64 << 20

// bounded returns body with a limit on what it allocates. Allocations of other goroutines count too; a fuzz
// worker has few of them.
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
