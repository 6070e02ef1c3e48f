//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package engine

import "os"

// flock leaves it to Pebble's own lock, which on these systems opens the file for one
// process alone.
func flock(*os.File) error { return nil }
