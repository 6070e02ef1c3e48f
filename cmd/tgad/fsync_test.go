package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/runtime"
)

// TestACallIsTwoSyncedBatches measures from outside the syncs of a governed call: strace sees every
// fdatasync of the daemon, by file. One caller makes $TGAD_CALLS calls (50). Each syncs its intent before
// the send, and its effect before the answer.
func TestACallIsTwoSyncedBatches(t *testing.T) {
	strace := serial.Program(t, "strace")
	calls := fromEnv(t, "TGAD_CALLS", 50)
	p := newProcess(t)
	trace := filepath.Join(p.dir, "strace")
	// -f for the threads; the tool server is followed too, but has no log. -y names
	// the file of each sync.
	p.wrap = []string{strace, "-f", "-y", "-e", "trace=fsync,fdatasync", "-e", "signal=none", "-o", trace}
	if out, err := exec.Command(strace, "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("strace may not trace here: %v: %s", err, out)
	}
	p.start()
	before := p.counter("commits")
	for n := range calls {
		res, err := p.client.Call(context.Background(), runtime.Request{
			Server: "payments", Tool: "charge", Key: fmt.Sprint("k", n), Args: []byte(`{"account":"acme","amount":1}`),
		})
		if err != nil || res.Attempts != 1 {
			t.Fatalf("call %d: %d attempts, %v", n, res.Attempts, err)
		}
	}
	commits := p.counter("commits") - before
	// strace does not pass the signal on, so the daemon is found by its lock file.
	b, err := os.ReadFile(filepath.Join(p.data, "tgad.lock"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(b), &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.exited
	p.cmd = nil

	syncs, files := logSyncs(t, trace)
	t.Logf("%d calls: the engine's counter says %d synced batches, strace %d syncs of %d log files", calls, commits, syncs, files)
	if commits != 2*calls {
		t.Errorf("%d calls made %d synced batches, want %d", calls, commits, 2*calls)
	}
	// Besides the calls, opening a store syncs a few records of its own, and each segment begins with one.
	if most := 2*calls + 10 + 4*files; syncs > most {
		t.Errorf("strace counts %d syncs of logs for %d calls and %d logs, want at most %d", syncs, calls, files, most)
	}
	if syncs < 2*calls {
		t.Errorf("strace counts %d syncs of logs for %d calls: some were acknowledged without one", syncs, calls)
	}
}

var logSync = regexp.MustCompile(`(?:fdatasync|fsync)\(\d+<[^>]*?/(log/\d{16})>`)

// logSyncs counts the syncs of log files in a trace, and the files.
func logSyncs(t *testing.T, trace string) (syncs, files int) {
	t.Helper()
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// A call that another thread's line interrupts has a second line, "resumed",
		// which names no file.
		if m := logSync.FindStringSubmatch(lines.Text()); m != nil {
			syncs++
			seen[m[1]] = true
		}
	}
	if err := errors.Join(lines.Err(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return syncs, len(seen)
}

// counter reads a counter of the store from the daemon's metrics.
func (p *process) counter(name string) int {
	p.t.Helper()
	raw, err := p.client.Metrics(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^tgad_\w*` + name + `\w* (\S+)$`).FindSubmatch(raw)
	if m == nil {
		p.t.Fatalf("no counter %s in\n%s", name, raw)
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return int(v)
}
