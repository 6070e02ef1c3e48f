//go:build unix

package notice

import (
	"os/exec"
	"syscall"
)

// lead makes the program the leader of a process group. When its time is over, the whole group is killed, so a
// shell's children are killed too.
func lead(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
