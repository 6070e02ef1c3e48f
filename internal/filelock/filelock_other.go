//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filelock

import "os"

const noFollow = 0

// flock leaves it to Pebble's own lock, which on these systems opens the file for one
// process alone.
func flock(*os.File) error { return nil }

func alive(int) bool { return true }

func unsupported(error) bool { return false }
