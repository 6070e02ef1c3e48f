package backup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/backup/bucket"
	"github.com/tgad/tgad/internal/backup/manifest"
	"github.com/tgad/tgad/schemas/tga"
)

// spooling is the bucket in which a backup is kept. The backup is first made in a directory on this
// machine, the spool, and then sent to the bucket.
//
// The spool is a backup like any other. On the disk of the store it is mostly links to the store's
// files. The bucket is authoritative: if the spool is another backup, it gets the manifest of the
// bucket. Then the store checks whether its log continues that backup, and copies what is missing.
type spooling struct {
	to     string
	place  *bucket.Place
	looked time.Time // when the bucket last had, for certain, what this process believes it has
}

// bucketLook is how often the bucket is read while the store has nothing new.
const bucketLook = 5 * time.Minute

// toBucket is make for a bucket. adopt also continues the backup of a store with another id, if this
// store's log continues that store's log.
func (k *Keeper) toBucket(ctx context.Context, s Settings, adopt bool) (made bool, err error) {
	if access.Within(s.Spool, k.o.Data) {
		return false, tga.Errorf(tga.ValidationError, "[backup] spool %s is within the store", s.Spool)
	}
	if s.Spool, err = access.Target(s.Spool); err != nil {
		return false, tga.Errorf(tga.StoreUnavailable, "[backup] spool: %w", err)
	}
	if k.bucket.to != s.To {
		objects, err := k.o.Bucket(s.To)
		if err != nil {
			return false, err
		}
		k.bucket = spooling{to: s.To, place: bucket.NewPlace(s.To, objects, k.o.Clock, k.unswept)}
		k.found = stamp{}
	}
	b := &k.bucket
	stats := k.store.Stats()
	now := stampOf(stats)
	if now == k.found {
		if k.o.Clock().Sub(b.looked) < bucketLook {
			b.place.Sweep(ctx)
			return false, nil
		}
		b.place.Forget()
	}
	m, err := b.place.Holds(ctx)
	if err != nil {
		return false, err
	}
	if m != nil && m.Store != stats.StoreID && !adopt {
		return false, foreign(s.To, m.Store, stats.StoreID)
	}
	if m != nil && m.End.Group == k.group && now == k.found {
		b.looked = k.o.Clock()
		return false, nil
	}
	if err := prepare(s.Spool, m, stats.StoreID); err != nil {
		return false, err
	}
	if err := k.store.Backup(ctx, s.Spool); err != nil {
		return false, err
	}
	if err := b.place.Push(ctx, s.Spool); err != nil {
		return false, err
	}
	if m, err = b.place.Holds(ctx); err == nil && m != nil {
		k.found, k.group, b.looked = now, m.End.Group, k.o.Clock()
	}
	return true, err
}

// unswept logs why objects in a bucket cannot be deleted, and with nil that they can again.
func (k *Keeper) unswept(err error) {
	if err == nil {
		k.o.Log.Info("objects of earlier backups are deleted from the bucket again")
		return
	}
	k.o.Log.Warn("the bucket has objects of earlier backups that cannot be deleted now", "error", err)
}

// prepare makes the spool a backup with the manifest m of the bucket, so that the next backup
// continues it. m is nil if the bucket has no backup.
func prepare(spool string, m *manifest.Manifest, store tga.ID) error {
	has, err := manifest.Read(spool)
	if tga.CodeOf(err) == tga.StateChecksumMismatch {
		has, err = nil, nil // the spool is only a cache
	}
	if err != nil {
		return err
	}
	if m != nil && reflect.DeepEqual(has, m) || m == nil && has != nil && has.Store == store {
		return nil
	}
	if err := ours(spool); err != nil {
		return err
	}
	fail := func(err error) error { return tga.Errorf(tga.StoreUnavailable, "prepare %s: %w", spool, err) }
	if m == nil {
		if err := os.RemoveAll(spool); err != nil {
			return fail(err)
		}
		return nil
	}
	raw, err := m.Encode()
	if err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(filepath.Join(spool, "log"), access.DirMode); err != nil {
		return fail(err)
	}
	path := filepath.Join(spool, manifest.Name)
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	f, err := access.Create(fresh)
	if err != nil {
		return fail(err)
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// ours refuses a spool with files that no backup has: it may be a directory with other data.
func ours(spool string) error {
	all, err := os.ReadDir(spool)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "look at %s: %w", spool, err)
	}
	for _, e := range all {
		switch e.Name() {
		case "log", manifest.Name, manifest.Name + ".new", "WATERMARK", "tgad.lock":
		case "making.lock": // of a process that was killed when it had given its first backup the name
		default:
			return tga.Errorf(tga.ValidationError, "[backup] spool %s has a file %s: it should be a directory of its own", spool, e.Name())
		}
	}
	return nil
}
