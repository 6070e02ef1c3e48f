package hostdir

import (
	"io/fs"
	"syscall"
)

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), mtime: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.ino, s.dev, s.ctime = int64(st.Ino), int64(st.Dev), st.Ctim.Nano()
	}
	return s
}
