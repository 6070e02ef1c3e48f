package doctor

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"
)

func dataSync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// processState returns the name of a process and whether it is stopped, "" if the process
// cannot be seen. A stopped holder keeps its lock and does not answer.
func processState(pid string) string {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	// The name is in parentheses and may contain any character. The state follows the last ")".
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end+2 >= len(b) || end < open {
		return ""
	}
	name := string(b[open+1 : end])
	if b[end+2] == 'T' {
		return name + ", stopped"
	}
	return name
}
