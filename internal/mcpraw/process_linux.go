package mcpraw

import "syscall"

// processAttr makes the process die with the thread that started it, and lead its own
// process group: a terminal's ctrl-C is for this process, which then drains.
func processAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
