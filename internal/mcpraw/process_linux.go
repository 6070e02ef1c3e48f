package mcpraw

import "syscall"

// processAttr makes the process die with the thread that started it, and lead a process group of
// its own. So a terminal's ctrl-C reaches only this process, which then drains.
func processAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
