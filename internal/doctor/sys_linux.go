package doctor

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"
)

func dataSync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// processState returns what a process is called and whether it is stopped, "" where it
// cannot be seen: a stopped holder keeps its lock and answers nobody.
func processState(pid string) string {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	// The name stands in brackets and may hold anything; the state follows the last.
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
