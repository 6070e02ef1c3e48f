package mcpfront

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
)

// TestOwnTaskOutlivesItsShim: a client that has a task's id learns the outcome of the call from
// whichever shim it asks. The shim is killed at every point of the call.
func TestOwnTaskOutlivesItsShim(t *testing.T) {
	for _, victims := range []string{"shim", "daemon", "daemon+shim"} {
		if victims != "shim" && testing.Short() {
			continue
		}
		for _, point := range fronttest.KillPoints {
			r := fronttest.NewRig(t, true)
			r.Victim = point + ": " + victims
			args := fmt.Sprintf(`{"killed":true,"p":%q}`, point)
			id, known := r.Follow("charge", args)
			effects := fronttest.JournalOf(t, r.Journal)
			switch {
			case known == "":
				t.Errorf("%s: nothing is known of task %q", r.Victim, id)
			case strings.Contains(known, `"text":"ok"`):
				if len(effects) != 1 {
					t.Errorf("%s: answered, and %d effects", r.Victim, len(effects))
				}
			case strings.Contains(known, "OUTCOME UNKNOWN"):
				if len(effects) > 1 {
					t.Errorf("%s: in doubt, and %d effects", r.Victim, len(effects))
				}
			default:
				t.Errorf("%s: %s", r.Victim, known)
			}
			t.Logf("%-24s task %v, %d effects, in doubt %v", r.Victim, id != "", len(effects), strings.Contains(known, "OUTCOME UNKNOWN"))
			r.Drop()
		}
	}
}
