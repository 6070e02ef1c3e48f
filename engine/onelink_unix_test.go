//go:build unix

package engine_test

import "syscall"

var oneLink any = &syscall.Stat_t{Nlink: 1}
