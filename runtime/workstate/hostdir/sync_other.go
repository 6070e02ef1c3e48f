//go:build !linux

package hostdir

import "errors"

// canSyncAll says whether syncAll works on this system.
const canSyncAll = false

func syncAll(string) error { return errors.ErrUnsupported }
