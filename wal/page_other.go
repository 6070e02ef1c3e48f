//go:build !linux

package wal

import "errors"

// setDirect always fails: on this system all writes go through the kernel's cache.
func setDirect(uintptr, bool) error { return errors.ErrUnsupported }
