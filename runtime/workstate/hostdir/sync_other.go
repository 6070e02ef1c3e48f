//go:build !linux

package hostdir

import "errors"

// canSyncAll says that syncAll exists.
const canSyncAll = false

func syncAll(string) error { return errors.ErrUnsupported }
