//go:build unix

package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
)

// unread starts tgad with a pipe as stderr that has no reader.
func unread(t *testing.T, dir string, args ...string) (in io.WriteCloser, out io.ReadCloser, cmd *exec.Cmd) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), "tgad", args...)
	cmd.Dir, cmd.Stderr, cmd.Env = dir, w, append(os.Environ(), "TGAD_DATA=", "TGAD_SOCKET=")
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, r.Close(), cmd.Start(), w.Close()); err != nil {
		t.Fatal(err)
	}
	return in, out, cmd
}

// TestReaderThatIsGoneEndsNoWork: whoever read the log or the progress is gone. A daemon, a shim and a verb that works
// for long write the next line to a pipe without a reader, and go on.
func TestReaderThatIsGoneEndsNoWork(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "tgad-gone-") // a path that is not too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })

	t.Run("daemon", func(t *testing.T) {
		_, _, cmd := unread(t, dir, "serve", "--data", "data", "--socket", filepath.Join(dir, "s"), "--log-level", "debug")
		c := client.New(filepath.Join(dir, "s"), client.Options{})
		if err := waitFor(func() error { return c.Ready(t.Context()) }); err != nil {
			t.Errorf("it is not ready: %v", err)
		}
		if err := errors.Join(c.Close(), cmd.Process.Signal(os.Interrupt)); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended by %v", err)
		}
	})
	t.Run("shim", func(t *testing.T) {
		in, out, cmd := unread(t, dir, "mcp", "--data", "mcp", "--log-level", "debug", "--", "tgad-lab", "payments", "--journal", "payments.journal")
		lines := bufio.NewScanner(out)
		for _, line := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"charge","arguments":{"account":"a","amount":5}}}`,
		} {
			if _, err := io.WriteString(in, line+"\n"); err != nil {
				t.Error(err)
			}
			if !lines.Scan() {
				t.Fatalf("no answer to %s", line)
			}
		}
		if !strings.Contains(lines.Text(), `"amount":5`) {
			t.Errorf("the answer: %s", lines.Text())
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended by %v", err)
		}
	})
	t.Run("progress", func(t *testing.T) {
		code, one, errs := says("export", "--data", filepath.Join(dir, "mcp"))
		if code != cli.ExitOK {
			t.Fatal(errs)
		}
		// It is checked for longer than the first word of progress takes.
		if err := os.WriteFile(filepath.Join(dir, "long.ndjson"), []byte(strings.Repeat(one, (48<<20)/len(one))), 0o600); err != nil {
			t.Fatal(err)
		}
		_, out, cmd := unread(t, dir, "verify", "long.ndjson", "--progress")
		said, err := io.ReadAll(out)
		if err = errors.Join(err, cmd.Wait()); err != nil || !strings.HasPrefix(string(said), "ok: ") {
			t.Errorf("%q, %v", said, err)
		}
	})
}
