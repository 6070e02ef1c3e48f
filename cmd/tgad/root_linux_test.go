package main

import (
	"os"
	goruntime "runtime"
	"syscall"
	"testing"
)

// withoutRoot makes this goroutine access files as the user nobody. Its thread ends with it.
func withoutRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	goruntime.LockOSThread()
	if err := syscall.Setfsuid(65534); err != nil {
		t.Fatal(err)
	}
}
