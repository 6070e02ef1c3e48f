//go:build planted

package planted

import (
	"os"
	"time"
)

var bug = os.Getenv("TGAD_PLANTED")

// On reports whether a bug is chosen.
func On(name string) bool { return name == bug }

// Pause sleeps long enough for another goroutine to run in between.
func Pause() { time.Sleep(100 * time.Microsecond) }
