package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
)

// filled is a daemon whose store takes a while to check.
func filled(t *testing.T) *process {
	p := newProcess(t)
	p.start()
	for n := range 12 {
		req := runtime.Request{Server: "payments", Tool: "no_such_tool", Key: fmt.Sprint("k", n), Args: fmt.Appendf(nil, `{"n":%d,"text":%q}`, n, strings.Repeat("x", 1<<20))}
		if res, err := p.client.Call(t.Context(), req); res.TraceID.IsZero() {
			t.Fatal(err)
		}
	}
	return p
}

// TestBackupOfADaemonIsPaced: a backup uses at most about half of one processor, so that it does
// not delay the calls that the daemon serves meanwhile. On a slow or busy machine the share can
// only be lower.
func TestBackupOfADaemonIsPaced(t *testing.T) {
	p := filled(t)
	var busy, took time.Duration
	for n := range 3 {
		from, began := p.worked(), time.Now()
		if err := p.client.Backup(t.Context(), filepath.Join(p.dir, fmt.Sprint("copy", n))); err != nil {
			t.Fatal(err)
		}
		busy, took = busy+p.worked()-from, took+time.Since(began)
	}
	t.Logf("worked for %v of %v", busy, took)
	if busy > took*7/10 {
		t.Errorf("backups that took %v kept the processor busy for %v", took, busy)
	}
}

// worked returns the processor time of the daemon.
func (p *process) worked() time.Duration {
	p.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	// Behind the name: the state is field 3, utime 14, stime 15, in hundredths of a second.
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// TestInterruptEndsBackupOfADaemon sends SIGINT to the verb in the middle of the check of the
// copy. The daemon ends its work, leaves nothing of the copy, and serves on.
func TestInterruptEndsBackupOfADaemon(t *testing.T) {
	p := filled(t)
	for try := 0; ; try++ {
		to := filepath.Join(p.dir, fmt.Sprint("copy", try))
		cmd := exec.Command("tgad", "--socket", p.socket, "backup", to)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		midst := waitFor(func() error {
			all, err := p.client.Working(t.Context())
			if err == nil && (len(all) != 1 || all[0].What != "backup" || all[0].Traces == 0) {
				err = fmt.Errorf("no backup is being checked: %+v", all)
			}
			if _, there := os.Stat(to); there == nil {
				return nil // the verb was faster than this test
			}
			return err
		})
		if err := errors.Join(midst, cmd.Process.Signal(os.Interrupt)); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatalf("%v: %s", err, &stderr)
		}
		if _, err := os.Stat(to); err == nil && try < 20 {
			_ = cmd.Wait() // the verb was faster than the signal
			continue
		}
		interrupted(t, cmd, &stderr)
		over := waitFor(func() error {
			all, err := p.client.Working(t.Context())
			if err == nil && len(all) != 0 {
				err = fmt.Errorf("it goes on: %+v", all)
			}
			return err
		})
		if over != nil {
			t.Error(over)
		}
		if _, err := os.Stat(to); err == nil && try < 20 {
			continue // the last step was faster than the end of the request
		}
		for _, left := range []string{to, to + ".partial"} {
			if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", left, err)
			}
		}
		if err := p.client.Ready(t.Context()); err != nil {
			t.Errorf("the daemon: %v", err)
		}
		return
	}
}
