package serving_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
)

// processorTime is what processes have taken, with that of their children that have ended.
func processorTime(t testing.TB, pids ...int) (sum time.Duration) {
	t.Helper()
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended, and its parent has its time
		}
		var ticks [4]int64 // user, system, and of children
		fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
		for i := range ticks {
			if _, err := fmt.Sscan(fields[11+i], &ticks[i]); err != nil {
				t.Fatal(err)
			}
			sum += time.Duration(ticks[i]) * 10 * time.Millisecond
		}
	}
	return sum
}

// TestCostOfDelivery measures calls of 16 callers in turns: at a daemon without a receiver, and at one that delivers to a webhook,
// each with a store of its own in one database. Its time is processor time, and the delivery has come to its end in it.
func TestCostOfDelivery(t *testing.T) {
	serial.Long(t)
	const callers, block, rounds = 16, 800, 7
	server, err := common.Server()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(server.Dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	var first int
	if _, err := fmt.Sscan(string(raw), &first); err != nil {
		t.Fatal(err)
	}
	own := func() time.Duration { return processorTime(t, append(server.Processes(), first)...) }
	with := newDelivering(t, "[[audit]]\nid = \"hook\"", lease)
	without := newDelivering(t, "", lease)

	names := [2]string{"without", "with a webhook"}
	daemons := [2]*daemon{without.start(), with.start()}
	var took, servers [2]time.Duration
	n := 0
	for round := range rounds {
		for i, d := range daemons {
			began, at, pid := own(), time.Now(), d.cmd.Process.Pid
			before := processorTime(t, pid)
			var running sync.WaitGroup
			for c := range callers {
				running.Go(func() {
					for k := range block / callers {
						if _, err := d.Call(t.Context(), call("charge", fmt.Sprint(round, " ", c, " ", k))); err != nil {
							t.Error(err)
						}
					}
				})
			}
			running.Wait()
			if i == 1 {
				until(t, "there is no lag", func() bool { return metric(t, d, `tgad_audit_lag{audit="hook"}`) == "0" })
			}
			if round == 0 {
				continue // the first calls fill caches
			}
			took[i] += processorTime(t, pid) - before
			servers[i] += own() - began
			t.Logf("%s: %d calls in %v", names[i], block, time.Since(at).Round(time.Millisecond))
		}
		if round > 0 {
			n += block
		}
	}
	for i := range names {
		t.Logf("%s: %.2f ms of the daemon and %.2f ms of the server for a call", names[i], float64(took[i].Microseconds())/float64(n)/1000, float64(servers[i].Microseconds())/float64(n)/1000)
	}
}
