//go:build !unix

package notice

import "os/exec"

// lead leaves it at ending the program alone.
func lead(*exec.Cmd) {}
