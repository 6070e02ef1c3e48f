package mcpfront

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
)

// BenchmarkOverhead measures the cost of a message compared with the bare tool server: p50 and p99 of
// one client that waits for each answer, in one run. A governed call pays for two syncs of the disk.
// The tool server writes no journal here.
func BenchmarkOverhead(b *testing.B) {
	for _, way := range []struct {
		name           string
		shim, governed bool
	}{
		{"bare/pass", false, false},
		{"shim/pass", true, false},
		{"bare/call", false, true},
		{"shim/call", true, true},
	} {
		b.Run(way.name, func(b *testing.B) {
			ask := benchPeer(b, way.shim)
			method, params := "echo", `{"text":"hello","n":%d}`
			if way.governed {
				method, params = "tools/call", `{"name":"nothing","arguments":{"text":"hello","n":%d}}`
			}
			for i := range 20 {
				ask(method, fmt.Sprintf(params, -i))
			}
			took := make([]time.Duration, 0, b.N)
			b.ResetTimer()
			for i := range b.N {
				began := time.Now()
				ask(method, fmt.Sprintf(params, i))
				took = append(took, time.Since(began))
			}
			b.StopTimer()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// benchPeer starts the tool server, alone or behind a shim that keeps the log itself.
func benchPeer(b *testing.B, shim bool) func(method, params string) {
	b.Helper()
	dir, err := os.MkdirTemp("", "tgad-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	journal := filepath.Join(dir, "journal")
	cmd := exec.Command(fronttest.FakeProgram())
	cmd.Env = append(os.Environ(), fronttest.EnvFake+"="+journal)
	if shim {
		cmd = exec.Command(os.Args[0], "/usr/bin/env", fronttest.EnvProcess+"=", fronttest.EnvFake+"="+journal, fronttest.FakeProgram())
		cmd.Env = append(os.Environ(), fronttest.EnvProcess+"=shim", fronttest.EnvDir+"="+dir)
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	lines, id := bufio.NewReaderSize(out, 64<<10), 0
	ask := func(method, params string) {
		id++
		if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
			b.Fatal(err)
		}
		line, err := lines.ReadBytes('\n')
		if err != nil {
			b.Fatal(err)
		}
		if f := frames.NewFrame(line[:len(line)-1]); string(f.RawID) != fmt.Sprint(id) || !f.Result.Present() {
			b.Fatalf("%s: %.300s", method, line)
		}
	}
	ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"b","version":"1"}}`)
	return ask
}
