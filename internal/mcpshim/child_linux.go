package mcpshim

import "syscall"

// childAttr makes the tool server die with the thread that started it, and lead its own
// process group, so that a wrapper's descendants can be ended with it.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
