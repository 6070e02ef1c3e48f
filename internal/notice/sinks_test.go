//go:build unix

package notice

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// command is a sink that runs a shell script, and its log.
func command(script string) (Command, *bytes.Buffer) {
	var log bytes.Buffer
	return Command{Argv: []string{"sh", "-c", script, "name"}, Logger: slog.New(slog.NewTextHandler(&log, nil))}, &log
}

// TestCommandGetsTheNotice: the command gets the notice as one line of JSON on its standard input, which it
// need not read. It has accepted the notice only if it exits with 0. Its output is in the log, cut, on one
// line.
func TestCommandGetsTheNotice(t *testing.T) {
	at := filepath.Join(t.TempDir(), "got")
	c, log := command("cat > '" + at + "'")
	n := &Notice{ID: "i", Subject: "a <b> & c", Text: "x\ny\n", Matters: []Matter{doubt(1)}}
	if err := c.Put(t.Context(), n); err != nil || log.Len() > 0 {
		t.Fatalf("%v, %s", err, log)
	}
	raw, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	var got Notice
	if err := json.Unmarshal(raw, &got); err != nil || got.Subject != n.Subject || got.Matters[0].Key != "k-1" || bytes.Count(raw, []byte("\n")) != 1 {
		t.Errorf("%v: %s", err, raw)
	}
	n.Text = strings.Repeat("x", 1<<20)
	c, _ = command("exit 0")
	if err := c.Put(t.Context(), n); err != nil {
		t.Errorf("one that reads nothing: %v", err)
	}
	c, log = command("echo 'no such address' >&2; yes | head -c 100000; exit 3")
	err = c.Put(t.Context(), n)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(log.String(), "no such address") || !strings.Contains(log.String(), "cut=true") || log.Len() > 3*mostOutput {
		t.Errorf("%v, logged %s", err, log)
	}
	c.Argv = []string{filepath.Join(t.TempDir(), "none")}
	if err := c.Put(t.Context(), n); err == nil {
		t.Error("a program that is not there took it")
	}
}

// TestCommandEndsWithItsTime: a command that runs too long is ended with all processes that it started, also
// if one of them holds its output. Processes that it leaves behind when it ends by itself are its own
// concern.
func TestCommandEndsWithItsTime(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	alive, err := os.OpenFile(pipe, os.O_RDWR, 0) // so that both end
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, _ := command("exec 3> '" + pipe + "'; (sleep 100; true) & echo started >&3; wait")
	ended := make(chan error, 1)
	go func() { ended <- c.Put(ctx, &Notice{}) }()
	if _, err := io.ReadFull(alive, make([]byte, len("started\n"))); err != nil {
		t.Fatal(err)
	}
	rest, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer rest.Close()
	alive.Close()
	cancel()
	if err := <-ended; err == nil {
		t.Error("it was taken")
	}
	if err := rest.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := rest.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("what the program had started lives on: %d, %v", n, err)
	}
	c, _ = command("sleep 10 & exit 0")
	if err := c.Put(t.Context(), &Notice{}); err != nil {
		t.Errorf("one that leaves something behind: %v", err)
	}
}
