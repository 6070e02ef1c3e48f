package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/tgad/tgad/schemas/tga"
)

// Beside is a separate program with verbs that are not linked into tgad. It is in the same directory as
// tgad, or in PATH.
type Beside struct {
	Program string
	Build   string // how to get it
}

// Programs that have verbs of tgad.
var (
	Lab      = Beside{"tgad-lab", "go install github.com/tgad/tgad/cmd/tgad-lab@latest"}
	Postgres = Beside{"tgad-postgres", "in the packages of tgad, or from its source: make build"}
)

// Exec replaces this process by the program, with the arguments as they were typed. So the program gets
// the signals and the streams, and sets the exit code. Exec returns only if that fails.
func (b Beside) Exec(what string, args []string) error {
	program, err := b.path()
	if err != nil {
		return tga.Errorf(tga.NotFound, "%s is a verb of %s, which is neither beside tgad nor in PATH; %s: %w", what, b.Program, b.Build, err)
	}
	return syscall.Exec(program, append([]string{program}, args...), os.Environ())
}

// path finds the program beside this one, and else in PATH.
func (b Beside) path() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), b.Program)); err == nil {
		return path, nil
	}
	return exec.LookPath(b.Program)
}
