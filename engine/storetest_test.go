package engine_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		options := engine.Options{FS: vfs.NewMem(), FirstSegmentBytes: 64 << 10}
		open := func() *engine.DB {
			t.Helper()
			db, err := engine.Open("store", options)
			if err != nil {
				t.Fatalf("open: %v", err)
			}
			return db
		}
		db := open()
		closing := func() {
			t.Helper()
			if err := db.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		return storetest.Harness{
			Store: db,
			Reopen: func() runtime.Store {
				closing()
				db = open()
				return db
			},
			Close: func() { closing() },
		}
	})
}
