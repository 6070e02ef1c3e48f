package engine

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/backup/manifest"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// Backup copies the open store into dir while appends go on. If dir does not exist, the copy is
// opened and checked completely before it is renamed to dir: Backup leaves under dir a store that
// verifies, or nothing. If dir holds a backup of this store, Backup copies only what is new since
// then, and reads it back; the earlier backup can be restored until the new one is complete. The
// end of ctx ends the backup. It takes at most half a processor and half of the disk's time, as
// [DB.Check] does.
//
// Files that are no longer written to become hard links, if the file system has them. So copy dir
// to another disk to be safe from a failure of this one. Errors of the copy are STORE_UNAVAILABLE;
// a copy with a problem is STATE_CHECKSUM_MISMATCH. VALIDATION_ERROR: dir holds something else, or
// lies in the store itself, or holds a backup with records that this store does not have (a backup
// of another store, or records that a restore gave up). STATE_LOCK_ACQUIRE_FAILED: another process
// is using the backup.
func (db *DB) Backup(ctx context.Context, dir string) error {
	if err := db.health.enter(); err != nil {
		return err
	}
	defer db.health.leave()
	work := db.works.begin("backup")
	defer db.works.end(work)
	if db.readOnly {
		return tga.Errorf(tga.StoreUnavailable, "backup of a store that is open read-only: copy its directory")
	}
	if access.Within(dir, db.dir) {
		return tga.Errorf(tga.ValidationError, "backup to %s: it lies in the directory of the store, and would be lost with it", dir)
	}
	b := &backup{opts: db.opts, log: db.wal, store: db.storeID, times: &db.times}
	before, err := readManifest(b.opts.FS, dir)
	if err == nil && before == nil {
		err = b.first(ctx, dir, work)
	} else if err == nil {
		err = b.next(ctx, dir)
	}
	if err != nil && tga.CodeOf(err) == "" && ctx.Err() == nil {
		err = tga.Errorf(tga.StoreUnavailable, "backup to %s: %w", dir, err)
	}
	return err
}

// backup copies the log of an open store. It does not delay appends: it copies up to the end that
// the log has when the copy begins, and the log keeps every file of the copy until the copy ends.
type backup struct {
	opts  Options
	log   *wal.Log
	store tga.ID
	times *times
}

// first makes a backup under a temporary name, checks it, and then renames it to dir.
func (b *backup) first(ctx context.Context, dir string, work *work) error {
	fs := b.opts.FS
	return aside(fs, dir, func(temp string) error {
		if err := fs.MkdirAll(fs.PathJoin(temp, logName), access.DirMode); err != nil {
			return err
		}
		made := b.times.now() // before the end of the copy is known: what is acknowledged by then is in it
		end, list, err := b.log.CopyTo(ctx, b.paced(ctx), fs.PathJoin(temp, logName), nil)
		if err != nil {
			return err
		}
		m := b.describe(made, end, list)
		if err := writeMark(fs, temp, markOf(m)); err != nil {
			return err
		}
		if err := verifyCopy(ctx, temp, b.opts, work); err != nil {
			return err
		}
		return writeManifest(fs, temp, m)
	})
}

// next extends a backup by the new records. Until the new manifest is written, every file of the
// earlier backup stays there with all its bytes.
func (b *backup) next(ctx context.Context, dir string) (err error) {
	fs := b.opts.FS
	dir, lock, err := lockDir(fs, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	before, err := readManifest(fs, dir) // another backup may have ended before the lock
	if err != nil {
		return err
	}
	if before == nil {
		return tga.Errorf(tga.StoreUnavailable, "backup to %s: its manifest was removed meanwhile", dir)
	}
	if holds, err := b.log.Holds(endOf(before)); err != nil {
		return err
	} else if !holds {
		return tga.Errorf(tga.ValidationError, "backup to %s: it holds a backup of store %s with group %d of its log, which this store, %s, does not have: it is another store, or was restored to an earlier time. Back up to another directory",
			dir, before.Store, before.End.Group, b.store)
	}
	at := fs.PathJoin(dir, logName)
	if err := wal.TrimCopy(fs, at, filesOf(before)); err != nil {
		return err
	}
	made := b.times.now()
	end, list, err := b.log.CopyTo(ctx, b.paced(ctx), at, filesOf(before))
	if err != nil {
		return err
	}
	if err := wal.VerifyCopy(ctx, wal.Options{FS: b.paced(ctx), Dir: at, Random: b.opts.random, Logger: b.opts.Logger}, endOf(before), end, list); err != nil {
		return err
	}
	m := b.describe(made, end, list)
	if err := writeManifest(fs, dir, m); err != nil {
		return err
	}
	if err := writeMark(fs, dir, markOf(m)); err != nil {
		return err
	}
	return wal.TrimCopy(fs, at, filesOf(m))
}

// paced returns the file system, slowed down, for a part of the work that takes long.
func (b *backup) paced(ctx context.Context) vfs.FS { return pacedFS{b.opts.FS, ctx, newPacer()} }

// describe makes the manifest of a copy of the log of a store.
func (b *backup) describe(made tga.Millis, end wal.Position, list []wal.CopiedFile) *manifest.Manifest {
	m := &manifest.Manifest{
		Format: manifest.Format, Store: b.store, Timeline: b.log.Timeline(), Made: made,
		End: manifest.End{Group: end.Group, Sum: end.Sum, Segment: end.Segment, From: end.Start, To: end.End},
	}
	for _, f := range list {
		m.Files = append(m.Files, manifest.File{Name: f.Name, Length: f.Length, SHA256: hex.EncodeToString(f.Digest[:])})
	}
	return m
}

// writeManifest replaces the manifest atomically: after a crash it is the old one or the new one.
func writeManifest(fs vfs.FS, dir string, m *manifest.Manifest) error {
	b, err := m.Encode()
	if err != nil {
		return err
	}
	path := fs.PathJoin(dir, manifest.Name)
	f, err := fs.Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(fs, dir)
}

// readManifest reads the manifest of a backup, nil if the directory has none. Its errors are those
// of [manifest.Decode], and STORE_UNAVAILABLE.
func readManifest(fs vfs.FS, dir string) (*manifest.Manifest, error) {
	path := fs.PathJoin(dir, manifest.Name)
	f, err := fs.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var b []byte
	if err == nil {
		b, err = io.ReadAll(f)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "backup %s: %w", path, err)
	}
	return manifest.Decode(b, path)
}

// endOf returns the position of the newest record of a backup, zero if m is nil.
func endOf(m *manifest.Manifest) wal.Position {
	if m == nil {
		return wal.Position{}
	}
	return wal.Position{Segment: m.End.Segment, Start: m.End.From, End: m.End.To, Group: m.End.Group, Sum: m.End.Sum}
}

func markOf(m *manifest.Manifest) guard.Mark {
	return guard.Mark{StoreID: m.Store, Timeline: m.Timeline, Group: m.End.Group, Sum: m.End.Sum}
}

// filesOf returns the files of a backup by name.
func filesOf(m *manifest.Manifest) map[string]wal.CopiedFile {
	out := map[string]wal.CopiedFile{}
	if m == nil {
		return out
	}
	for _, f := range m.Files {
		digest, _ := f.Digest() // [manifest.Decode] checked that each file has a digest
		out[f.Name] = wal.CopiedFile{Name: f.Name, Length: f.Length, Digest: digest}
	}
	return out
}

// writeMark gives a copied store its watermark.
func writeMark(fs vfs.FS, dir string, mark guard.Mark) error {
	w, err := guard.CreateWatermark(fs, dir, mark)
	if err != nil {
		return err
	}
	return w.Close()
}

// verifyCopy checks the whole of a copied store.
func verifyCopy(ctx context.Context, dir string, o Options, work *work) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o.CacheBytes = 8 << 20
	o.Logger = slog.New(slog.DiscardHandler) // a copy has no index; the warning about that would mislead
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

// Restore makes a store in dir, which must not exist, from a backup. The new store gets an id and
// a secret of its own, and it opens frozen until [DB.Unfreeze]: it lacks what was appended after
// the backup, so a call that it shows as unsent may have been sent. Errors are RESTORE_FAILED,
// wrapping the cause. After an error, and when ctx ends, nothing is left under dir.
func Restore(ctx context.Context, backup, dir string, opts Options) error {
	return RestoreAt(ctx, backup, dir, Point{}, opts)
}

func restore(ctx context.Context, backup, dir string, at Point, opts Options) error {
	return aside(opts.FS, dir, func(temp string) error { return restoreIn(ctx, backup, temp, at, opts) })
}

// restoreIn is restore into a directory that only this process uses.
func restoreIn(ctx context.Context, backup, temp string, at Point, opts Options) error {
	fs := opts.FS
	m, err := readManifest(fs, backup)
	if err != nil {
		return err
	}
	if m == nil { // accept a copy of a store's directory
		if _, err := fs.Stat(fs.PathJoin(backup, logName)); errors.Is(err, os.ErrNotExist) {
			return tga.Errorf(tga.NotFound, "there is no backup in %s, and no store", backup)
		}
	}
	if m != nil && at.Time > m.Made {
		return tga.Errorf(tga.ValidationError, "%s: the backup was made at %s", at.Time, m.Made)
	}
	if err := copyStore(ctx, fs, m, backup, temp); err != nil {
		return err
	}
	opts.StoreID, opts.WitnessFile = tga.ID{}, "" // the restored store gets a new id
	mode := openMode{fork: true}
	if at != (Point{}) {
		mode.cut = &cut{Point: at}
	}
	db, err := open(temp, opts, mode)
	if err != nil {
		return err
	}
	if db.doubt != nil {
		return errors.Join(error(db.doubt), db.Close())
	}
	id, err := anew(&db.opts, db.commits, db.storeID, mode.cut)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	if mode.cut != nil {
		if err := checkMade(ctx, db, "restore"); err != nil {
			return errors.Join(err, db.Close())
		}
	}
	if err := errors.Join(db.Close(), ctx.Err()); err != nil {
		return err
	}
	if mode.cut != nil {
		if err := dropAside(fs, temp); err != nil {
			return err
		}
	}
	mark, err := guard.ReadWatermark(fs, temp)
	if err != nil {
		return err
	}
	mark.StoreID = id
	return writeMark(fs, temp, mark)
}

// checkMade checks a store that was made from records of another store, before it gets its name.
func checkMade(ctx context.Context, db *DB, what string) error {
	work := db.works.begin(what)
	defer db.works.end(work)
	rep, err := db.check(ctx, nil, work)
	if err == nil && len(rep.Problems) > 0 {
		err = damaged("%s: the store that was made has %d problems, the first: %s", what, len(rep.Problems), rep.Problems[0])
	}
	return err
}

// dropAside removes the records after the point, which the log has set aside: the backup still
// has them.
func dropAside(fs vfs.FS, dir string) error {
	at := fs.PathJoin(dir, logName)
	names, err := fs.List(at)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, wal.AsidePrefix) {
			if err := fs.Remove(fs.PathJoin(at, name)); err != nil {
				return err
			}
		}
	}
	return syncDir(fs, at)
}

// anew gives a restored store a new id, which it returns, and a new secret, and freezes it. With
// the old secret the next attempt of a call would get the same permit as an attempt that was lost,
// and an executor may still hold that permit.
func anew(o *Options, commits *committer, old tga.ID, cut *cut) (id tga.ID, err error) {
	if id, err = o.newID(); err != nil {
		return id, err
	}
	var secret [32]byte
	if err := o.random(secret[:]); err != nil {
		return id, err
	}
	when := ""
	if cut != nil {
		when = fmt.Sprintf(", as it was at group %d", cut.found.At.Group)
	}
	reason, err := json.Marshal("restored from a backup of store " + old.String() + when + ": what was appended after it is not known")
	if err != nil {
		return id, err
	}
	w := commits.newWriter()
	w.set(keyspace.AppendMeta(nil, metaStoreID), id[:])
	w.set(keyspace.AppendMeta(nil, metaSecret), secret[:])
	w.set(keyspace.AppendMeta(nil, metaFrozen), reason)
	w.delete(keyspace.AppendMeta(nil, metaToken))
	if cut != nil { // the log may lack bodies that groups before this one need
		w.setFloor(cut.found.At.Group)
	}
	return id, commits.apply(w)
}

// copyStore copies the log and the watermark of a backup, or of a store that no process has open,
// and syncs them. From a backup it copies only the files of the manifest, because an unfinished
// backup may have left other files there. m is nil for a store.
func copyStore(ctx context.Context, fs vfs.FS, m *manifest.Manifest, from, to string) error {
	in, out := fs.PathJoin(from, logName), fs.PathJoin(to, logName)
	if err := fs.MkdirAll(out, access.DirMode); err != nil {
		return err
	}
	if m != nil {
		for name, f := range filesOf(m) {
			if err := copyFile(ctx, fs, fs.PathJoin(in, name), fs.PathJoin(out, name), &f); err != nil {
				return err
			}
		}
		if err := syncDir(fs, out); err != nil {
			return err
		}
		return writeMark(fs, to, markOf(m))
	}
	names, err := fs.List(in)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := copyFile(ctx, fs, fs.PathJoin(in, name), fs.PathJoin(out, name), nil); err != nil {
			return err
		}
	}
	if err := syncDir(fs, out); err != nil {
		return err
	}
	err = copyFile(ctx, fs, fs.PathJoin(from, guard.WatermarkName), fs.PathJoin(to, guard.WatermarkName), nil)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return syncDir(fs, to)
}

// copyFile copies a file. want has the length and the digest that the file must have; if want is
// nil, it copies the whole file.
func copyFile(ctx context.Context, fs vfs.FS, from, to string, want *wal.CopiedFile) error {
	if want == nil {
		info, err := fs.Stat(from)
		if err != nil {
			return err
		}
		_, err = wal.CopyFile(ctx, fs, from, to, info.Size())
		return err
	}
	digest, err := wal.CopyFile(ctx, fs, from, to, want.Length)
	if errors.Is(err, io.EOF) || err == nil && digest != want.Digest {
		return damaged("%s is not what the manifest of the backup says", from)
	}
	return err
}
