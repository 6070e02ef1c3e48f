package cli

import (
	"os"
	"path/filepath"

	"github.com/tgad/tgad/internal/clip"
)

// ShellWord is [clip.ShellWord].
func ShellWord(s string) string { return clip.ShellWord(s) }

// Absolute returns the absolute form of a path; "" stays "".
func Absolute(path string) string {
	if abs, err := filepath.Abs(path); path != "" && err == nil {
		return abs
	}
	return path
}

// SameFile reports whether two paths lead to one file.
func SameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}
