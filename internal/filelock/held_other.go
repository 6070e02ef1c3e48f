//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filelock

// Held cannot tell on these systems.
func Held(string) (held, known bool) { return false, false }

// Owner cannot tell on these systems.
func Owner(string) (uid uint32, ok bool) { return 0, false }
