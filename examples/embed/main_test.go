package main

import "context"
import "os"

// The second run is served from the ledger: the tool is not called again.
func Example() {
	dir, err := os.MkdirTemp("", "tgad-embed")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for range 2 {
		if err := run(context.Background(), dir); err != nil {
			panic(err)
		}
	}
	// Output:
	// charging {"amount":100} under key order-1
	// COMPLETED: {"receipt":17}
	// COMPLETED: {"receipt":17}
}
