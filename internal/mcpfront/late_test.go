package mcpfront

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
)

// TestShimThatStoodStillDoesNotSend stops a shim with SIGSTOP when it has its permit, and lets it
// continue after the permit's time is over. The shim sends nothing, and tells the log and its client
// so. The client's next call runs.
func TestShimThatStoodStillDoesNotSend(t *testing.T) {
	r := fronttest.NewRig(t, true)
	r.Victim = "before send: stop"
	if err := r.Dial(); err != nil {
		t.Fatal(err)
	}
	r.Call("charge", `{"warm":1}`)
	if _, err := fmt.Fprintln(r.In, `{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"brief","arguments":{"name":"killed"}}}`); err != nil {
		t.Fatal(err)
	}
	pid := r.Peer.Process.Pid
	fronttest.Eventually(t, "the shim to stand still", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	if _, err := os.Stat(filepath.Join(r.Dir, "killed")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // its permit allows a send for 50 ms
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	line, err := fronttest.ReadWithin(r.Out, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	fronttest.Has(t, line, `"id":900`, "not sent", "is over")
	if n := r.Ran(`{"name":"killed"}`); n != 0 {
		t.Errorf("%d effects of a call whose permit was stale", n)
	}
	answer, _ := r.Call("charge", `{"name":"next"}`)
	fronttest.Has(t, answer, `"ok"`)
}
