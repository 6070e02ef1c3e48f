//go:build unix && !linux

package mcpshim

import "syscall"

// childAttr has no parent-death signal to ask for here. A tool server of a killed shim
// ends when it reads EOF; until then its lock keeps a successor away.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
