package mcpfront

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestTwoShimsOfOneProcessLoseNothing: every call of two agents that want the same is made,
// one after the other or at the same time, and none is answered with another one's answer.
func TestTwoShimsOfOneProcessLoseNothing(t *testing.T) {
	const calls = 200 // of each way
	a := newRig(t, true)
	b := a.second()
	for _, r := range []*rig{a, b} {
		if err := r.dial(); err != nil {
			t.Fatal(err)
		}
	}
	bad := func(answer string, err error) bool {
		return err != nil || !strings.Contains(answer, `"ok"`) || strings.Contains(answer, "replayed")
	}
	lost := 0
	for i := range calls {
		r := []*rig{a, b}[i%2]
		answer, err := r.ask("tools/call", `{"name":"charge","arguments":{"way":"sequential"}}`)
		if bad(answer, err) {
			lost++
			t.Errorf("call %d: %.300s %v", i, answer, err)
		}
	}
	for i := range calls / 2 {
		var wg sync.WaitGroup
		for _, r := range []*rig{a, b} {
			wg.Go(func() {
				answer, err := r.ask("tools/call", `{"name":"charge","arguments":{"way":"overlapping"}}`)
				if bad(answer, err) {
					t.Errorf("pair %d: %.300s %v", i, answer, err)
				}
			})
		}
		wg.Wait()
	}
	for _, way := range []string{"sequential", "overlapping"} {
		if n := a.ran(`{"way":"` + way + `"}`); n != calls {
			t.Errorf("%s: %d of %d calls ran", way, n, calls)
		}
	}
	t.Logf("%d of %d calls lost", lost+2*calls-a.ran(`{"way":"sequential"}`)-a.ran(`{"way":"overlapping"}`), 2*calls)
}

// TestKilledBehindALauncher: a shell between client and shim, a client that is started anew,
// and a call id that is another one for each try, change nothing: no call runs twice.
func TestKilledBehindALauncher(t *testing.T) {
	var total verdict
	for _, point := range killPoints {
		r := newRig(t, true)
		r.launcher = []string{"/bin/sh", "-c", `"$0" "$@"; exit $?`}
		r.meta = func(try int) string { return fmt.Sprintf(`{"claudecode/toolUseId":"toolu_%d"}`, try) }
		r.victim = point + ": shim"
		r.call("charge", `{"warm":1}`)
		args := `{"name":"killed"}`
		answer, tries := r.call("held", args)
		eventually(t, "the kill", func() bool {
			_, err := os.Stat(filepath.Join(r.dir, "killed"))
			return err == nil
		})
		v := r.judge(args, answer, tries)
		if v.twice != 0 || v.lost != 0 {
			t.Errorf("killed %s: %+v, answer %.300s", point, v, answer)
		}
		// Doubt stays doubt, however often and under whatever call id it is asked.
		if v.doubts != 0 {
			for range 3 {
				again, _ := r.call("held", args)
				has(t, again, "OUTCOME UNKNOWN")
			}
			if n := r.ran(args); n > 1 {
				t.Errorf("killed %s: a repeat of a call in doubt made %d effects", point, n)
			}
		}
		total.add(v)
		r.drop()
	}
	t.Logf("kills behind a launcher: %+v", total)
}
