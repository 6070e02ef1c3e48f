//go:build unix

package access

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

func owner(info fs.FileInfo) (uid, gid int, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(s.Uid), int(s.Gid), true
}

func self() Process {
	p := Process{UID: os.Geteuid(), Groups: []int{os.Getegid()}}
	if more, err := os.Getgroups(); err == nil { // after an error, those groups count as foreign
		p.Groups = append(p.Groups, more...)
	}
	return p
}

// KeepOwner removes the owner's bits from the umask of the process. So every package of the process makes files
// that the process itself can open again, such as the store's and its locks. Call it before any file is made and
// before other goroutines run.
func KeepOwner() {
	syscall.Umask(syscall.Umask(0o077) &^ 0o700)
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
