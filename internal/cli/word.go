package cli

import (
	"path/filepath"

	"github.com/tgad/tgad/internal/clip"
)

// ShellWord is [clip.ShellWord].
func ShellWord(s string) string { return clip.ShellWord(s) }

// Absolute is the path of a file from whichever directory it is typed in; "" stays "".
func Absolute(path string) string {
	if abs, err := filepath.Abs(path); path != "" && err == nil {
		return abs
	}
	return path
}
