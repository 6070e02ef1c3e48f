package hostdir_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime/workstate/hostdir"
)

var fixed = time.Unix(1_700_000_000, 0)

// waitForTick returns when the clock of the file system is well past what stands in the
// directory, so that stamps of it are trusted.
func waitForTick(t *testing.T, d *hostdir.Dir) {
	t.Helper()
	time.Sleep(100 * time.Millisecond)
	must(t, os.WriteFile(filepath.Join(t.TempDir(), "tick"), nil, 0o644))
}
