//go:build !linux

package wal

import "errors"

// setDirect is not known here: all writes go through the kernel's cache.
func setDirect(uintptr, bool) error { return errors.ErrUnsupported }
