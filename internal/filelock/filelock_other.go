//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filelock

import "os"

const noFollow = 0

// flock leaves it to Pebble's own lock, which on these systems opens the file for one
// process alone.
func flock(*os.File) error { return nil }

func shared(*os.File) error { return ErrUnsupported }

// Wait is of the systems on which processes share files.
func Wait(*os.File) error { return ErrUnsupported }

// Free gives back what Wait locked.
func Free(*os.File) error { return ErrUnsupported }

func alive(int) bool { return true }

func unsupported(error) bool { return false }
