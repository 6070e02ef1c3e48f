package mcp

import "syscall"

// childAttr makes the child die with the thread that started it, and leads its own
// process group: a terminal's ctrl-C is for this process, which then drains.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
