package mcpfront

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// What testdata/fakeserver reads; it says what each is.
const (
	envFake     = "TGAD_MCP_FAKE"
	envStubborn = "TGAD_MCP_STUBBORN"
	envFakeDie  = "TGAD_MCP_FAKE_AT"
)

// fakeTools is what a fakeserver lists.
const fakeTools = `{"tools":[{"name":"charge","description":"Charges a card","inputSchema":{"type":"object"}},{"name":"look","description":"Looks","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`

// fakeProgram builds the tool server of the tests, once, and is its path.
var fakeProgram = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "tgad-fakeserver-")
	if err != nil {
		panic(err)
	}
	fakeDir = dir
	program := filepath.Join(dir, "fakeserver")
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, "github.com/tgad/tgad/internal/mcpfront/fronttest/testdata/fakeserver").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("fakeserver: %v: %s", err, out))
	}
	return program
})

var fakeDir string // removed at the end

// runTests runs the tests of a package, or is the process that one of them has started: of that verb.
func runTests(m *testing.M, verbs map[string]func(ctx context.Context, dir string) error) int {
	if verb := os.Getenv(envProcess); verb != "" {
		return process(verb, verbs)
	}
	code := m.Run()
	if fakeDir != "" {
		_ = os.RemoveAll(fakeDir)
	}
	return code
}
