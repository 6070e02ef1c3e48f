//go:build unix && !linux

package mcpraw

import "syscall"

// processAttr has no parent-death signal to ask for here. The child of a killed parent
// ends when it reads EOF; until then its lock keeps a successor away.
func processAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
