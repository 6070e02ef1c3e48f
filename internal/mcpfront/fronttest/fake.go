package fronttest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Environment variables of testdata/fakeserver, which describes them.
const (
	EnvFake     = "TGAD_MCP_FAKE"
	EnvStubborn = "TGAD_MCP_STUBBORN"
	EnvFakeDie  = "TGAD_MCP_FAKE_AT"
)

// FakeTools is the list of tools of a fakeserver.
const FakeTools = `{"tools":[{"name":"charge","description":"Charges a card","inputSchema":{"type":"object"}},{"name":"look","description":"Looks","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`

// FakeProgram builds the tool server of the tests, once, and returns its path.
var FakeProgram = sync.OnceValue(func() string {
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

// Run runs the tests of a package. In a process that such a test has started, it runs the process's verb.
func Run(m *testing.M, verbs map[string]func(ctx context.Context, dir string) error) int {
	if verb := os.Getenv(EnvProcess); verb != "" {
		return process(verb, verbs)
	}
	code := m.Run()
	if fakeDir != "" {
		if err := os.RemoveAll(fakeDir); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}
