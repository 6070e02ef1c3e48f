package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// tailBytes is the length of the segment whose end is searched; it is the default length.
const tailBytes = 64 << 20

// worst is the most expensive content for the search for a later record: each place looks like the
// header of a record until its checksum is computed.
var worst = []byte{'R', 1, 0, 0, 'R', 1, 0, 0}

// hostileTail measures how long it takes to find the end of a log that is followed by worst.
func (s *suite) hostileTail() error {
	size := uint32(tailBytes)
	if s.short {
		size /= 16
	}
	if !s.only.MatchString(fmt.Sprintf("hostile_tail/1/%d", size)) {
		return nil
	}
	dir := filepath.Join(s.dir, "tail")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	options := wal.Options{FS: vfs.Default, Dir: dir, Random: random, FirstSize: size}
	log, err := wal.Create(options, tga.ID{1}, tga.ID{2})
	if err != nil {
		return err
	}
	end := log.End()
	if err := errors.Join(log.Close(), fillBehind(dir, int64(end.End), int64(size))); err != nil {
		return err
	}
	s.add(once("hostile_tail", int(size), 1, func() (time.Duration, string, error) {
		start := time.Now()
		log, err := wal.Open(options)
		if err != nil {
			return 0, "", err
		}
		tail, err := log.Scan(wal.Position{}, func(*wal.Record) error { return nil })
		took := time.Since(start)
		if err == nil && (tail.At != end || tail.Doubt != nil) {
			err = fmt.Errorf("the log ends at %+v, in doubt: %v; it was made to end at %+v", tail.At, tail.Doubt, end)
		}
		return took, fmt.Sprintf("%d MiB of what looks like headers", size>>20), errors.Join(err, log.Close())
	}))
	return nil
}

// fillBehind writes worst over the first segment of a log, from an offset to its end.
func fillBehind(dir string, offset, size int64) error {
	names, err := filepath.Glob(filepath.Join(dir, "*1"))
	if err != nil || len(names) != 1 {
		return fmt.Errorf("the first segment in %s: %v: %w", dir, names, err)
	}
	f, err := os.OpenFile(names[0], os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(bytes.Repeat(worst, int(size-offset)/len(worst)), offset)
	return errors.Join(err, f.Close())
}
