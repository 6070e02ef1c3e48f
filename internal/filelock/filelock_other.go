//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filelock

import "os"

const noFollow = 0

// flock does nothing. On these systems Pebble's own lock opens the file for one process
// alone.
func flock(*os.File) error { return nil }

func shared(*os.File) error { return ErrUnsupported }

// Wait works only on systems on which processes share files.
func Wait(*os.File) error { return ErrUnsupported }

// Free releases the lock of Wait.
func Free(*os.File) error { return ErrUnsupported }

func alive(int) bool { return true }

func unsupported(error) bool { return false }
