package retention

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Archive exports traces to a new file in a directory, and returns the traces that are in the file. The
// file gets its name once it is durable and was read back. A trace that cannot be read is left out:
// tgad verify names it. So is a trace over the limits of an export.
//
// Until then the file is named by the id of its first trace. If a run ends before, it has erased
// nothing. So the next run begins with the same trace, and replaces the unfinished file.
func Archive(ctx context.Context, dir string, s Reader, now tga.Millis, ids []tga.ID) (in []tga.ID, name string, err error) {
	if err := access.MkdirDurable(dir); err != nil {
		return nil, "", archiveFailed(err)
	}
	stem := filepath.Join(dir, time.UnixMilli(int64(now)).UTC().Format("2006-01-02T150405Z")+"-"+ids[0].String())
	name = stem + ".ndjson"
	for n := 2; ; n++ { // a run that failed may have left a whole file in the same second
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return nil, "", archiveFailed(err)
		}
		name = fmt.Sprintf("%s-%d.ndjson", stem, n)
	}
	part := filepath.Join(dir, ids[0].String()+".part")
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", archiveFailed(err)
	}
	f, err := access.Create(part)
	if err != nil {
		return nil, "", archiveFailed(err)
	}
	in, err = write(ctx, s, f, ids)
	if err == nil {
		written(f)
		err = readBack(f, len(in))
	}
	err = errors.Join(err, f.Close())
	if err != nil || len(in) == 0 {
		return nil, "", errors.Join(err, os.Remove(part))
	}
	if err := os.Rename(part, name); err != nil {
		return nil, "", archiveFailed(err)
	}
	if err := access.SyncDir(dir); err != nil {
		return nil, "", archiveFailed(err)
	}
	return in, name, nil
}

func archiveFailed(err error) error {
	return tga.Errorf(tga.StoreUnavailable, "the archive: %w. Nothing was erased", err)
}

var written = func(*os.File) {} // a test damages the file

// write writes the traces that can be read, and syncs the file.
func write(ctx context.Context, s Reader, f *os.File, ids []tga.ID) (in []tga.ID, err error) {
	w := bufio.NewWriterSize(f, 1<<20)
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		entries, notes, err := read(ctx, s, id)
		if tga.CodeOf(err) == tga.StateRecoveryFailed {
			continue
		}
		if err != nil {
			return nil, err
		}
		err = w.Flush()
		at, serr := f.Seek(0, io.SeekCurrent)
		if err = errors.Join(err, serr); err != nil {
			return nil, archiveFailed(err)
		}
		switch err = ndjson.WriteLists(w, id, entries, notes); {
		case tga.CodeOf(err) == tga.LimitExceeded:
			w.Reset(f)
			if _, err := f.Seek(at, io.SeekStart); err != nil {
				return nil, archiveFailed(err)
			}
			if err := f.Truncate(at); err != nil {
				return nil, archiveFailed(err)
			}
		case err != nil:
			return nil, err
		default:
			in = append(in, id)
		}
	}
	if err := errors.Join(ndjson.End(w, len(in)), w.Flush(), f.Sync()); err != nil {
		return nil, archiveFailed(err)
	}
	return in, nil
}

// read reads a whole trace, its notes before its entries. So each note that it returns names an entry
// that it returns too. A note that is appended meanwhile is not included.
func read(ctx context.Context, s Reader, id tga.ID) (entries []chain.Entry, notes []tga.Note, err error) {
	for n, err := range s.Notes(ctx, id, 0) {
		if err != nil {
			return nil, nil, err
		}
		notes = append(notes, n)
	}
	for e, err := range s.Entries(ctx, id, 0) {
		if err != nil {
			return nil, nil, err
		}
		entries = append(entries, e)
	}
	return entries, notes, nil
}

// readBack verifies the content of the file: after the erasure it is the only copy.
func readBack(f *os.File, traces int) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return archiveFailed(err)
	}
	rep, err := ndjson.Verify(f)
	switch {
	case err != nil:
		return archiveFailed(err)
	case rep.Traces != traces:
		return archiveFailed(tga.Errorf(tga.StateChecksumMismatch, "%s has %d traces, and %d were written", f.Name(), rep.Traces, traces))
	}
	return nil
}
