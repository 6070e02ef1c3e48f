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

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
