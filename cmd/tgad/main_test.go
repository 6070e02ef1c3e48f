package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tgad/tgad/internal/lab"
)

// TestMain makes the test binary stand in for the command: a copy of it is "tgad" in
// PATH, and another tgad-lab, so that a daemon, its tool server and its callers are processes of their own.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"tgad": main, "tgad-lab": lab.Main})
}
