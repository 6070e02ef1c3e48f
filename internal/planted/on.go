//go:build planted

package planted

import (
	"os"
	"time"
)

var bug = os.Getenv("TGAD_PLANTED")

// On reports whether a bug is chosen.
func On(name string) bool { return name == bug }

// Pause makes a gap wide enough for another goroutine.
func Pause() { time.Sleep(100 * time.Microsecond) }
