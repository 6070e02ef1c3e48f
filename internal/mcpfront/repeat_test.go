package mcpfront

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
)

// TestTwoShimsOfOneProcessLoseNothing: every call of two agents that want the same is made, one after
// the other or at the same time, and no call gets the answer of another.
func TestTwoShimsOfOneProcessLoseNothing(t *testing.T) {
	const calls = 200 // for each of the two orders
	a := fronttest.NewRig(t, true)
	b := a.Second()
	for _, r := range []*fronttest.Rig{a, b} {
		if err := r.Dial(); err != nil {
			t.Fatal(err)
		}
	}
	bad := func(answer string, err error) bool {
		return err != nil || !strings.Contains(answer, `"ok"`) || strings.Contains(answer, "replayed")
	}
	lost := 0
	for i := range calls {
		r := []*fronttest.Rig{a, b}[i%2]
		answer, err := r.Ask("tools/call", `{"name":"charge","arguments":{"way":"sequential"}}`)
		if bad(answer, err) {
			lost++
			t.Errorf("call %d: %.300s %v", i, answer, err)
		}
	}
	for i := range calls / 2 {
		var wg sync.WaitGroup
		for _, r := range []*fronttest.Rig{a, b} {
			wg.Go(func() {
				answer, err := r.Ask("tools/call", `{"name":"charge","arguments":{"way":"overlapping"}}`)
				if bad(answer, err) {
					t.Errorf("pair %d: %.300s %v", i, answer, err)
				}
			})
		}
		wg.Wait()
	}
	for _, way := range []string{"sequential", "overlapping"} {
		if n := a.Ran(`{"way":"` + way + `"}`); n != calls {
			t.Errorf("%s: %d of %d calls ran", way, n, calls)
		}
	}
	t.Logf("%d of %d calls lost", lost+2*calls-a.Ran(`{"way":"sequential"}`)-a.Ran(`{"way":"overlapping"}`), 2*calls)
}

// TestKilledBehindALauncher: no call runs twice, even with a shell between client and shim, a client
// that is restarted, and a call id that differs for each try.
func TestKilledBehindALauncher(t *testing.T) {
	var total fronttest.Verdict
	for _, point := range fronttest.KillPoints {
		r := fronttest.NewRig(t, true)
		r.Launcher = []string{"/bin/sh", "-c", `"$0" "$@"; exit $?`}
		r.Meta = func(try int) string { return fmt.Sprintf(`{"claudecode/toolUseId":"toolu_%d"}`, try) }
		r.Victim = point + ": shim"
		r.Call("charge", `{"warm":1}`)
		args := `{"name":"killed"}`
		answer, tries := r.Call("held", args)
		fronttest.Eventually(t, "the kill", func() bool {
			_, err := os.Stat(filepath.Join(r.Dir, "killed"))
			return err == nil
		})
		v := r.Judge(args, answer, tries)
		if v.Twice != 0 || v.Lost != 0 {
			t.Errorf("killed %s: %+v, answer %.300s", point, v, answer)
		}
		// A call in doubt stays in doubt, however often and with whatever call id it is repeated.
		if v.Doubts != 0 {
			for range 3 {
				again, _ := r.Call("held", args)
				fronttest.Has(t, again, "OUTCOME UNKNOWN")
			}
			if n := r.Ran(args); n > 1 {
				t.Errorf("killed %s: a repeat of a call in doubt made %d effects", point, n)
			}
		}
		total.Add(v)
		r.Drop()
	}
	t.Logf("kills behind a launcher: %+v", total)
}
