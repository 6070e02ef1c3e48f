package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes the test binary stand in for the command: a copy of it is "tgad" in
// PATH, so that a daemon, its tool server and its callers are processes of their own.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"tgad": main})
}
