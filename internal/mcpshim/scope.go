package mcpshim

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// DefaultScope names the conversation of a shim that is started by its client: the
// process that started it, by number, start time and boot. The same client that starts a
// killed shim again is in the same conversation, so a call whose answer it lost is found
// again; another window, or a later start of the client, is another one.
func DefaultScope() string {
	pid := os.Getppid()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = nil // elsewhere than on Linux a process has its number alone
	}
	return fmt.Sprintf("client %d %s %s", pid, startTime(pid), bytes.TrimSpace(boot))
}

// startTime returns when a process started, in the kernel's ticks since boot: with it a
// number that is used again names another process.
func startTime(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is the command in parentheses, which may hold anything.
	_, rest, ok := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return ""
	}
	return fields[19]
}
