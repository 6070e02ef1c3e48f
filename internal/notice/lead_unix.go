//go:build unix

package notice

import (
	"os/exec"
	"syscall"
)

// lead makes the program lead a process group, which ends with it when its time is over: a shell's children
// are not left behind.
func lead(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
