package wal_test

import (
	"crypto/rand"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// A log is made, written, closed and read again. Whoever opens it scans it first: the scan
// passes on every whole record and finds the end, behind which the log goes on.
func ExampleLog() {
	o := wal.Options{
		FS: vfs.NewMem(), Dir: "log", FirstSize: wal.MinSegment, Size: wal.MinSegment, // a test's; a directory has vfs.Default
		Random: func(p []byte) error { _, err := rand.Read(p); return err },
	}
	if err := o.FS.MkdirAll(o.Dir, 0o700); err != nil {
		fmt.Println(err)
		return
	}
	log, err := wal.Create(o, tga.ID{1}, tga.ID{2})
	if err != nil {
		fmt.Println(err)
		return
	}
	var ops wal.Ops // what one append does
	ops.PutBody([]byte("order-1"), []byte("paid"), []byte(`{"receipt":17}`))
	var group wal.Group // the appends that become durable together
	group.Add(&ops, wal.MaxRecord)
	if _, err := log.Append(&group); err != nil { // one write and one sync; nothing may be shown before
		fmt.Println(err)
		return
	}
	if err := log.Close(); err != nil { // as a crash would end it
		fmt.Println(err)
		return
	}

	if log, err = wal.Open(o); err != nil {
		fmt.Println(err)
		return
	}
	defer func() { fmt.Println("closed:", log.Close()) }()
	tail, err := log.Scan(wal.Position{}, func(r *wal.Record) error {
		return r.Ops(func(op *wal.Op) error {
			if op.Place != wal.Inline { // a row without a body, or one in a file of its own
				return nil
			}
			body, err := log.Read(op.Ref, op.Key)
			fmt.Printf("%s %s %s\n", op.Key, op.Value, body)
			return err
		})
	})
	fmt.Println("missing:", tail.Doubt, err)
	if err := log.Resume(tail); err != nil {
		fmt.Println(err)
	}
	// Output:
	// order-1 paid {"receipt":17}
	// missing: <nil> <nil>
	// closed: <nil>
}
