//go:build unix && !linux

package mcpraw

import "syscall"

// processAttr makes the process lead a process group of its own. This platform has no
// parent-death signal. The child of a killed parent ends when it reads EOF; until then its lock
// keeps a successor from starting.
func processAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
