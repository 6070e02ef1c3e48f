package mcpfront

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
)

// TestKillsAtEveryStoreWrite kills each of the processes, and each pair, before each write
// and each sync that a governed call makes in the store of the daemon: the begin, the
// effect, and the note that the answer was delivered.
func TestKillsAtEveryStoreWrite(t *testing.T) {
	writes := func(r *fronttest.Rig) (n int) {
		raw, err := os.ReadFile(filepath.Join(r.Dir, fronttest.WritesFile))
		if err == nil {
			_, err = fmt.Sscan(string(raw), &n)
		}
		if err != nil {
			return 0
		}
		return n
	}
	// After a read call was answered, nothing is left to be written.
	warm := func(r *fronttest.Rig) { r.Call("look", `{"warm":1}`) }
	r := fronttest.NewRig(t, true)
	warm(r)
	r.Arm(0, "")
	r.Call("charge", `{"n":1}`)
	least := 3 * 2 // three appends, each written and synced
	// The last of them comes after the answer.
	fronttest.Eventually(t, "the writes of one call", func() bool { return writes(r) >= least })
	all := writes(r)
	r.Drop()

	var total fronttest.Verdict
	for n := 1; n <= all; n++ {
		for _, victims := range fronttest.VictimsFor(n) {
			r := fronttest.NewRig(t, true)
			warm(r)
			r.Arm(n, victims)
			args := fmt.Sprintf(`{"n":%d}`, n)
			answer, tries := r.Call("charge", args)
			fronttest.Eventually(t, fmt.Sprintf("write %d, %s killed", n, victims), func() bool {
				_, err := os.Stat(filepath.Join(r.Dir, "killed"))
				return err == nil
			})
			v := r.Judge(args, answer, tries)
			if v.Lost != 0 || v.Twice != 0 {
				t.Errorf("%s killed at write %d of %d: %+v, answer %.300s", victims, n, all, v, answer)
			}
			if v.Doubts != 0 && !strings.Contains(victims, "shim") && !strings.Contains(victims, "server") {
				t.Errorf("%s killed at write %d of %d: in doubt although the shim lived: %.300s", victims, n, all, answer)
			}
			total.Add(v)
			r.Drop()
		}
	}
	t.Logf("kills before each of %d writes and syncs of a call's three appends: %+v", all, total)
}
