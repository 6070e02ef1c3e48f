package hostdir

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), mtime: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.uid, s.gid = int(st.Uid), int(st.Gid)
		s.ino, s.dev, s.ctime = int64(st.Ino), int64(st.Dev), st.Ctim.Nano()
	}
	return s
}

// birth returns when a file was made, in nanoseconds; 0 if that is not known.
func birth(path string) int64 {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &st); err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
}

// own gives a directory that was made again its old owner, if that is another user or group.
func (s stamp) own(root *os.Root, name string) error {
	if s.uid == os.Geteuid() && s.gid == os.Getegid() {
		return nil
	}
	return root.Lchown(name, s.uid, s.gid)
}

// showsMappings reports whether the times of a file show that it was changed through a mapping. A file system in memory
// writes no page back, so a page that was changed once is changed again without anything that sets a time.
func showsMappings(path string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false
	}
	kind := uint32(st.Type)
	return kind != unix.TMPFS_MAGIC && kind != unix.RAMFS_MAGIC
}
