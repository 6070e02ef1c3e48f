//go:build !linux

package proc

import "github.com/tgad/tgad/internal/crashtest"

// RunChild does nothing where no children are started.
func RunChild() {}

// Tiers are none here: they stand on ptrace, seccomp, loop devices and FUSE.
func Tiers() []crashtest.Tier { return nil }
