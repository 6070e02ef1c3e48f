// A race detector multiplies what a process holds: what this measures would be its.
//
//go:build !race

package daemon

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// memory reads a line of /proc/PID/status in bytes: VmHWM is the most that was resident.
func memory(t *testing.T, cmd *exec.Cmd, name string) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no %s in the status of the process", name)
	return 0
}

// resetPeak makes VmHWM begin anew.
func resetPeak(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", cmd.Process.Pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

const mib = 1 << 20

// ones is a call whose body has about n bytes and as many values as can be.
func ones(key string, n int, comma string) string {
	return fmt.Sprintf(`{"tool_server":"pay","tool_name":"charge","idempotency_key":%q,"args":{"a":[1%s]}}`, key, strings.Repeat(comma+"1", n/(len(comma)+1)))
}

// TestMemoryOfLargeBodies: what a body costs is bounded by its bytes, not by the values in
// it, and what all bodies cost together by the budget.
func TestMemoryOfLargeBodies(t *testing.T) {
	b := setup(t, "[limits]\nbody_budget = \"64MiB\"\n")
	cmd := b.command(nil)
	base := memory(t, cmd, "VmRSS")
	for _, x := range []struct {
		what  string
		comma string
		calls int
		most  int64 // beyond base
	}{
		{"one canonical body of 8 MB", ",", 1, 200 * mib},
		{"one body of 8 MB that is not canonical", ", ", 1, 200 * mib},
		{"eight bodies of 8 MB at once", ",", 8, 600 * mib},
	} {
		resetPeak(t, cmd)
		var wg sync.WaitGroup
		statuses := make([]int, x.calls)
		for i := range x.calls {
			wg.Go(func() {
				statuses[i], _, _ = b.raw("POST", "/v1/tool-calls", ones(fmt.Sprint(x.what, i), 7_900_000, x.comma))
			})
		}
		wg.Wait()
		answered := 0
		for _, s := range statuses {
			if s == http.StatusOK {
				answered++
			} else if s != http.StatusServiceUnavailable {
				t.Errorf("%s: answered %d", x.what, s)
			}
		}
		peak := memory(t, cmd, "VmHWM") - base
		t.Logf("%s: %d of %d answered, %d MiB more at the peak than before", x.what, answered, x.calls, peak/mib)
		if answered == 0 || peak > x.most {
			t.Errorf("%s: %d of %d answered, %d MiB more at the peak, want at most %d", x.what, answered, x.calls, peak/mib, x.most/mib)
		}
	}
}

// unfinished is a request whose body of 15 MiB lacks its last byte. Bytes, written as they stand: a string
// of them would be copied each time.
var unfinished = append([]byte("POST /v1/tool-calls HTTP/1.1\r\nHost: tgad\r\nTgad-Client: slow\r\nContent-Length: 15728640\r\n\r\n"),
	bytes.Repeat([]byte(" "), 15*mib-1)...)

// TestBodiesBeyondTheBudget: eight bodies of 15 MiB that do not come to an end are more than the
// budget of 64 MiB. The first answer is that of one beyond it, and nobody waits for a time-out.
func TestBodiesBeyondTheBudget(t *testing.T) {
	b := setup(t, "[limits]\nbody_budget = \"64MiB\"\nbody_timeout = \"10m\"\n")
	b.command(nil)
	statuses := make(chan int, 8)
	for range cap(statuses) {
		c, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				statuses <- resp.StatusCode
				_ = resp.Body.Close()
			}
		}()
		_, _ = c.Write(unfinished) // refused in the middle
	}
	select {
	case got := <-statuses:
		if got != http.StatusServiceUnavailable {
			t.Errorf("answered %d", got)
		}
	case <-time.After(time.Minute):
		t.Error("nobody is beyond the budget")
	}
}

// TestUnfinishedBodiesHoldWhatTheySent: 150 bodies of 15 MiB that do not come to an end stay
// within the budget, calls beside them are answered, and their time runs out.
func TestUnfinishedBodiesHoldWhatTheySent(t *testing.T) {
	b := setup(t, "[limits]\nbody_budget = \"64MiB\"\nbody_timeout = \"4s\"\n")
	cmd := b.command(nil)
	base := memory(t, cmd, "VmRSS")
	var open []net.Conn
	for range 150 {
		c, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
		if err := c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(unfinished) // refused in the middle
	}
	peak := memory(t, cmd, "VmHWM") - base
	t.Logf("150 unfinished bodies of 15 MiB: %d MiB more at the peak than before", peak/mib)
	if peak > 300*mib {
		t.Errorf("150 unfinished bodies of 15 MiB take %d MiB", peak/mib)
	}
	told, cut := map[int]int{}, 0
	for _, c := range open {
		if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			cut++ // the time of its header was over before the daemon came to it
			continue
		}
		told[resp.StatusCode]++
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("they are answered %v, %d are cut off", told, cut)
	late, full := told[http.StatusUnprocessableEntity], told[http.StatusServiceUnavailable]
	// A machine that is busy with other things cuts off most of them, and then the rest may fit the
	// budget: that 503 is what is beyond it, TestBodiesBeyondTheBudget tells by bodies that are whole.
	if late+full == 0 || late+full+cut != len(open) || full == 0 && cut == 0 {
		t.Errorf("150 unfinished bodies are answered %v, and %d are cut off; want 422 when their time is over and 503 beyond the budget", told, cut)
	}
	if status, _, raw := b.raw("POST", "/v1/tool-calls", body("after", 10*mib)); status != http.StatusRequestEntityTooLarge && status != http.StatusOK {
		t.Errorf("a body of 10 MiB after them: %d %.300s", status, raw)
	}
}
