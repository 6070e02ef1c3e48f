package mcpfront

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestShimThatStoodStillDoesNotSend stops a shim with SIGSTOP when it has its permit, until the
// permit's time is over, and lets it go on: it sends nothing, and says so to the log and to its
// client, whose next call runs.
func TestShimThatStoodStillDoesNotSend(t *testing.T) {
	r := newRig(t, true)
	r.victim = "before send: stop"
	if err := r.dial(); err != nil {
		t.Fatal(err)
	}
	r.call("charge", `{"warm":1}`)
	if _, err := fmt.Fprintln(r.in, `{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"brief","arguments":{"name":"killed"}}}`); err != nil {
		t.Fatal(err)
	}
	pid := r.peer.Process.Pid
	eventually(t, "the shim to stand still", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	if _, err := os.Stat(filepath.Join(r.dir, "killed")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // its permit allows a send for 50 ms
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	line, err := readWithin(r.out, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	has(t, line, `"id":900`, "not sent", "is over")
	if n := r.ran(`{"name":"killed"}`); n != 0 {
		t.Errorf("%d effects of a call whose permit was stale", n)
	}
	answer, _ := r.call("charge", `{"name":"next"}`)
	has(t, answer, `"ok"`)
}
