package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

const labProgram = "tgad-lab"

// labVerb is a verb of tgad-lab, a program beside this one: what tries tgad is not linked into
// it. That program takes this process over, with the arguments as they were typed.
func labVerb(verb, short string) *cobra.Command {
	return &cobra.Command{
		Use: verb, Short: short, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			program, err := labPath()
			if err != nil {
				return fmt.Errorf("%s is a verb of %s, which is neither beside tgad nor in PATH; go install github.com/tgad/tgad/cmd/%[2]s@latest: %w", verb, labProgram, err)
			}
			return syscall.Exec(program, append([]string{program, verb}, args...), os.Environ())
		},
	}
}

// labPath finds the program beside this one, and else in PATH.
func labPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), labProgram)); err == nil {
		return path, nil
	}
	return exec.LookPath(labProgram)
}
