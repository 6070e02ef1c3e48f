//go:build !linux

package hostdir

import (
	"io/fs"
	"math"
	"os"
)

// stampOf returns a stamp that is never settled: every snapshot reads every file.
func stampOf(info fs.FileInfo) stamp {
	return stamp{size: info.Size(), mtime: info.ModTime().UnixNano(), ctime: math.MaxInt64 / 2}
}

// birth returns 0: when a file was made is not known here.
func birth(string) int64 { return 0 }

// own does nothing: the owner of a directory is not known here.
func (stamp) own(*os.Root, string) error { return nil }

func showsMappings(string) bool { return true }
