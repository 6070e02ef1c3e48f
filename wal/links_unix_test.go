//go:build unix

package wal

import "syscall"

var oneLink, twoLinks any = &syscall.Stat_t{Nlink: 1}, &syscall.Stat_t{Nlink: 2}
