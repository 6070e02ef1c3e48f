package engine

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// partial is the suffix of a directory that is not yet what its name says.
const partial = ".partial"

// Backup copies the open store into dir, which must not exist, while appends go on.
// The copy is opened and checked before it gets its name: what Backup leaves under
// dir is a store that verifies, or nothing. The end of ctx ends it. The check takes at most
// half a processor, as [DB.Check] does.
//
// Tables are hard links where the file system has them, so dir is to be copied
// elsewhere to be safe from the disk. Errors of the copy are STORE_UNAVAILABLE; a
// copy with a problem is STATE_CHECKSUM_MISMATCH.
func (db *DB) Backup(ctx context.Context, dir string) (err error) {
	if err := db.health.enter(); err != nil {
		return err
	}
	defer db.health.leave()
	work := db.works.begin("backup")
	defer db.works.end(work)
	fs := db.opts.FS
	if err := absent(fs, dir); err != nil {
		return err
	}
	if db.readOnly {
		return tga.Errorf(tga.StoreUnavailable, "backup of a store that is open read-only: copy its directory")
	}
	temp := dir + partial
	if err := fs.RemoveAll(temp); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "backup to %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, fs.RemoveAll(temp))
		}
	}()
	if err := db.copyLog(ctx, temp); err != nil {
		if tga.CodeOf(err) == "" && ctx.Err() == nil {
			err = tga.Errorf(tga.StoreUnavailable, "backup to %s: %w", dir, err)
		}
		return err
	}
	if err := db.verifyCopy(ctx, temp, work); err != nil {
		return err
	}
	return rename(fs, temp, dir)
}

// copyLog copies the log up to what is durable now, and no index: that is a function of it.
func (db *DB) copyLog(ctx context.Context, to string) error {
	fs := db.opts.FS
	if err := fs.MkdirAll(fs.PathJoin(to, logName), access.DirMode); err != nil {
		return err
	}
	end, err := db.wal.CopyTo(ctx, fs, fs.PathJoin(to, logName))
	if err != nil {
		return err
	}
	mark := guard.Mark{StoreID: db.storeID, Timeline: db.wal.Timeline(), Group: end.Group, Sum: end.Sum}
	if err := writeMark(fs, to, mark); err != nil {
		return err
	}
	return syncDir(fs, to)
}

// writeMark gives a copied store its watermark.
func writeMark(fs vfs.FS, dir string, mark guard.Mark) error {
	w, err := guard.CreateWatermark(fs, dir, mark)
	if err != nil {
		return err
	}
	return w.Close()
}

func (db *DB) verifyCopy(ctx context.Context, dir string, work *work) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := db.opts
	o.CacheBytes = 8 << 20
	c, err := OpenReadOnly(dir, o)
	if err != nil {
		return err
	}
	if c.doubt != nil {
		return errors.Join(error(c.doubt), c.Close())
	}
	rep, err := c.check(ctx, newPacer(), work)
	if err == nil && len(rep.Problems) > 0 {
		err = damaged("backup: the copy has %d problems, the first: %s", len(rep.Problems), rep.Problems[0])
	}
	return errors.Join(err, c.Close())
}

// absent refuses a directory that is there already and not empty.
func absent(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && len(names) == 0:
		return nil
	case err != nil:
		return tga.Errorf(tga.StoreUnavailable, "look at %s: %w", dir, err)
	}
	return tga.Errorf(tga.ValidationError, "%s is there already, with %d files", dir, len(names))
}

// rename gives a finished directory its name, durably.
func rename(fs vfs.FS, from, to string) error {
	fail := func(err error) error { return tga.Errorf(tga.StoreUnavailable, "rename %s to %s: %w", from, to, err) }
	if err := fs.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fail(err) // it is empty, as absent says
	}
	if err := fs.Rename(from, to); err != nil {
		return fail(err)
	}
	d, err := fs.OpenDir(fs.PathDir(to))
	if err != nil {
		return fail(err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fail(err)
	}
	return nil
}

// Restore makes a store in dir, which must not exist, from a backup. It gets an id and
// a secret of its own and opens frozen until [DB.Unfreeze]: what was appended after the
// backup is not in it, so a call that it shows as unsent may have been sent. Errors are
// RESTORE_FAILED, wrapping the cause; then, and where ctx ends, nothing is left under dir.
func Restore(ctx context.Context, backup, dir string, opts Options) error {
	if err := restore(ctx, backup, dir, opts.withDefaults()); err != nil {
		return tga.Errorf(tga.RestoreFailed, "restore %s from %s: %w", dir, backup, err)
	}
	return nil
}

func restore(ctx context.Context, backup, dir string, opts Options) (err error) {
	fs, temp := opts.FS, dir+partial
	if err := absent(fs, dir); err != nil {
		return err
	}
	if err := fs.RemoveAll(temp); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, fs.RemoveAll(temp))
		}
	}()
	if err := copyStore(ctx, fs, backup, temp); err != nil {
		return err
	}
	opts.StoreID, opts.WitnessFile = tga.ID{}, "" // it gets an id of its own
	db, err := open(temp, opts, openMode{fork: true})
	if err != nil {
		return err
	}
	if db.doubt != nil {
		return errors.Join(error(db.doubt), db.Close())
	}
	if err := db.rename(); err != nil {
		return errors.Join(err, db.Close())
	}
	if err := errors.Join(db.Close(), ctx.Err()); err != nil {
		return err
	}
	mark, err := guard.ReadWatermark(fs, temp)
	if err != nil {
		return err
	}
	mark.StoreID = db.storeID
	if err := writeMark(fs, temp, mark); err != nil {
		return err
	}
	return rename(fs, temp, dir)
}

// rename gives the store a new id and secret and freezes it. A new secret, because the
// old one would give the next attempt of a call the permit that somebody may hold from
// the time that was lost.
func (db *DB) rename() error {
	id, err := db.newID()
	if err != nil {
		return err
	}
	var secret [32]byte
	if err := db.random(secret[:]); err != nil {
		return err
	}
	reason, err := json.Marshal("restored from a backup of store " + db.storeID.String() + ": what was appended after it is not known")
	if err != nil {
		return err
	}
	w := db.newWriter()
	w.set(keyspace.AppendMeta(nil, metaStoreID), id[:])
	w.set(keyspace.AppendMeta(nil, metaSecret), secret[:])
	w.set(keyspace.AppendMeta(nil, metaFrozen), reason)
	w.delete(keyspace.AppendMeta(nil, metaToken))
	db.storeID = id
	return db.apply(w)
}

// copyStore copies the log and the watermark of a store that is open nowhere, and syncs
// them.
func copyStore(ctx context.Context, fs vfs.FS, from, to string) error {
	for _, dir := range []string{"", logName} {
		in, out := fs.PathJoin(from, dir), fs.PathJoin(to, dir)
		names, err := fs.List(in)
		if err != nil {
			return err
		}
		if err := fs.MkdirAll(out, access.DirMode); err != nil {
			return err
		}
		for _, name := range names {
			if dir == "" && name != guard.WatermarkName {
				continue
			}
			if err := copyFile(ctx, fs, fs.PathJoin(in, name), fs.PathJoin(out, name)); err != nil {
				return err
			}
		}
		if err := syncDir(fs, out); err != nil {
			return err
		}
	}
	return nil
}

// copyPart is how many bytes of a file are copied between two looks at the context.
const copyPart = 1 << 20

func copyFile(ctx context.Context, fs vfs.FS, from, to string) error {
	in, err := fs.Open(from)
	if err != nil {
		return err
	}
	out, err := fs.Create(to, vfs.WriteCategoryUnspecified)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	for err == nil {
		if err = ctx.Err(); err == nil { // a long file ends where it is
			_, err = io.CopyN(out, in, copyPart)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close(), in.Close())
}
