package wal

import (
	"context"
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// CopyTo copies the log into a directory that is there and empty, up to its end when it was
// called, and syncs it. Files that are not written any more are linked where the file system
// can. Appends go on meanwhile; a rewrite waits.
func (l *Log) CopyTo(ctx context.Context, fs vfs.FS, dir string) (Position, error) {
	defer l.Pin()()
	end := l.End()
	names, err := l.opts.FS.List(l.opts.Dir)
	if err != nil {
		return end, unavailable("list "+l.opts.Dir, err)
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return end, err
		}
		n, _, segment := parseName(name)
		_, body := parseBodyName(name)
		from, to := l.files.path(name), fs.PathJoin(dir, name)
		switch {
		case segment && n == end.Segment:
			err = copyTo(ctx, fs, from, to, int64(end.End))
		case segment && n < end.Segment, body:
			err = vfs.LinkOrCopy(fs, from, to)
		}
		if err != nil {
			return end, errors.Join(ctx.Err(), unavailable("copy "+name, err))
		}
	}
	d := files{fs, dir}
	if err := d.sync(); err != nil {
		return end, unavailable("sync "+dir, err)
	}
	return end, nil
}

// copyTo copies the first n bytes of a file.
func copyTo(ctx context.Context, fs vfs.FS, from, to string, n int64) error {
	in, err := fs.Open(from)
	if err != nil {
		return err
	}
	out, err := fs.Create(to, vfs.WriteCategoryUnspecified)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	for at := int64(0); at < n && err == nil; at += piece {
		if err = ctx.Err(); err == nil {
			_, err = io.CopyN(out, in, min(piece, n-at))
		}
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close(), in.Close())
}
