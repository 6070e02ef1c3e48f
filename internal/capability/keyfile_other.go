//go:build !unix

package capability

import "io/fs"

// private takes the file as it is: these systems have no mode bits that say who may
// read it.
func private(string, fs.FileInfo) error { return nil }

func locked(_ string, f func() error) error { return f() }

func syncDir(string) error { return nil }
