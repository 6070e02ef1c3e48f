package proc

import (
	"bytes"
	"os/exec"
)

// command runs a program and returns what it printed. Like every fork it waits until no
// store is open here: the fork holds the lock of one until it has become the program,
// and the store is locked for that long after it was closed.
func command(name string, args ...string) ([]byte, error) {
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	forks.Lock()
	err := cmd.Start()
	forks.Unlock()
	if err == nil {
		err = cmd.Wait()
	}
	return out.Bytes(), err
}
