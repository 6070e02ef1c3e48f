package memstore_test

import (
	"testing"
	"time"

	"github.com/tgad/tgad/internal/memstore"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		disk := new(memstore.Disk)
		open := func() runtime.Store { return memstore.Open(disk, time.Now) }
		return storetest.Harness{Store: open(), Reopen: open}
	})
}
