package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/serial"
)

// ending is a context that ends once so many records are indexed.
type ending struct {
	context.Context
	far *Rebuilding
}

func (c ending) Err() error {
	if n, _ := c.far.Progress(); n > 0 {
		return context.Canceled
	}
	return nil
}

// TestIndexIsMadeInParts: rows of more than catchUpBatch bytes are several batches, between which
// the work can be stopped and says how far it is. What was stopped is made by the next open.
func TestIndexIsMadeInParts(t *testing.T) {
	serial.Test(t)
	const size = 64 << 10
	n := 2*catchUpBatch/size + 9
	fs := vfs.NewMem()
	var said bytes.Buffer
	open := func() *DB {
		t.Helper()
		said.Reset()
		db, err := Open("store", Options{FS: fs, Logger: slog.New(slog.NewTextHandler(&said, nil))})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	closing := func(db *DB) {
		t.Helper()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	key := func(i int) []byte { return []byte{'x', byte(i >> 8), byte(i)} }
	db := open()
	for i := range n {
		w := db.commits.newWriter()
		w.set(key(i), bytes.Repeat([]byte{byte(i)}, size))
		if err := db.commits.apply(w); err != nil {
			t.Fatal(err)
		}
	}
	closing(db)

	far := &Rebuilding{}
	if _, err := RebuildIndex(ending{t.Context(), far}, "store", Options{FS: fs}, far); !errors.Is(err, context.Canceled) {
		t.Fatalf("stopped in the middle: %v", err)
	}
	reached, of := far.Progress()
	if per := uint64(catchUpBatch / size); reached < per || reached > per+9 || of < uint64(n) {
		t.Errorf("stopped at record %d of %d, a batch has %d", reached, of, per)
	}
	db = open()
	if want := fmt.Sprintf("records=%d ", of); !strings.Contains(said.String(), want) {
		t.Errorf("the open made the index of %d records and says %s", of, said.String())
	}
	for i := range n {
		if got, err := db.index.get(key(i)); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, size)) {
			t.Fatalf("row %d has %d bytes, %v", i, len(got), err)
		}
	}
	closing(db)

	far = &Rebuilding{}
	done, err := RebuildIndex(t.Context(), "store", Options{FS: fs}, far)
	if got, of := far.Progress(); err != nil || done.Records != of || got != of || done.Rows < uint64(n) {
		t.Errorf("%+v at %d of %d, %v", done, got, of, err)
	}
	db = open()
	if strings.Contains(said.String(), "took over") {
		t.Errorf("after a whole one: %s", said.String())
	}
	closing(db)
}
