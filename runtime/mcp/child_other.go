//go:build unix && !linux

package mcp

import "syscall"

// childAttr has no parent-death signal to ask for here. A child of a killed parent
// ends when it reads EOF; until then its lock keeps a successor away.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
