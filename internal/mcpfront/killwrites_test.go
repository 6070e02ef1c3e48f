package mcpfront

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKillsAtEveryStoreWrite kills each of the processes, and each pair, before each write
// and each sync that a governed call makes in the store of the daemon: the begin, the
// effect, and the note that the answer was delivered.
func TestKillsAtEveryStoreWrite(t *testing.T) {
	writes := func(r *rig) (n int) {
		raw, err := os.ReadFile(filepath.Join(r.dir, writesFile))
		if err == nil {
			_, err = fmt.Sscan(string(raw), &n)
		}
		if err != nil {
			return 0
		}
		return n
	}
	// A call that only reads leaves nothing to be written once it is answered.
	warm := func(r *rig) { r.call("look", `{"warm":1}`) }
	r := newRig(t, true)
	warm(r)
	r.arm(0, "")
	r.call("charge", `{"n":1}`)
	least := 3 * 2 // three appends, each written and synced
	// The last of them comes after the answer.
	eventually(t, "the writes of one call", func() bool { return writes(r) >= least })
	all := writes(r)
	r.drop()

	var total verdict
	for n := 1; n <= all; n++ {
		for _, victims := range victimsFor(n) {
			r := newRig(t, true)
			warm(r)
			r.arm(n, victims)
			args := fmt.Sprintf(`{"n":%d}`, n)
			answer, tries := r.call("charge", args)
			eventually(t, fmt.Sprintf("write %d, %s killed", n, victims), func() bool {
				_, err := os.Stat(filepath.Join(r.dir, "killed"))
				return err == nil
			})
			v := r.judge(args, answer, tries)
			if v.lost != 0 || v.twice != 0 {
				t.Errorf("%s killed at write %d of %d: %+v, answer %.300s", victims, n, all, v, answer)
			}
			if v.doubts != 0 && !strings.Contains(victims, "shim") && !strings.Contains(victims, "server") {
				t.Errorf("%s killed at write %d of %d: in doubt although the shim lived: %.300s", victims, n, all, answer)
			}
			total.add(v)
			r.drop()
		}
	}
	t.Logf("kills before each of %d writes and syncs of a call's three appends: %+v", all, total)
}
