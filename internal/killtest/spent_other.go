//go:build !linux

package killtest

import "time"

// spent is the processor time of processes; here nobody says.
func spent(...int) time.Duration { return 0 }
