package cli

import (
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
