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
	if more, err := os.Getgroups(); err == nil { // without them a group counts as foreign
		p.Groups = append(p.Groups, more...)
	}
	return p
}

// KeepOwner takes the owner's bits out of the umask of the process, for all that it makes from then on, by
// whatever package: a file that its own maker cannot open again is no store, no lock and no
// configuration. Call it before anything is made and before other goroutines run.
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
