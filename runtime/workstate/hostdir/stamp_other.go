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

// birth returns when a file was made, in nanoseconds; 0 where that is not known.
func birth(string) int64 { return 0 }

// own does nothing: who owns a directory is not known.
func (stamp) own(*os.Root, string) error { return nil }
