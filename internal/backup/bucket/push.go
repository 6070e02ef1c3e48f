package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/backup/manifest"
	"github.com/tgad/tgad/schemas/tga"
)

// Place is a bucket in which a backup is kept. It is for one goroutine at a time.
type Place struct {
	name    string // for errors
	objects Objects
	clock   func() time.Time
	warn    func(error) // called for an error that prevents no backup; with nil when it is over

	known  bool      // head and tag are what the bucket has, as far as this process knows
	head   *head     // nil if the bucket has none
	tag    string    // of the object BACKUP
	dirty  bool      // the bucket may have objects that BACKUP does not name
	sweep  time.Time // the next sweep is not before this time
	silent string    // the last warning
	sent   bool      // this process has sent a whole backup: before that, an earlier process may have sent parts
}

// NewPlace returns a place in a bucket, of which nothing is known yet. name is its address. warn is called once with
// the reason why unneeded objects cannot be deleted, and with nil once they can be deleted again. Deleting is retried.
func NewPlace(name string, o Objects, clock func() time.Time, warn func(error)) *Place {
	return &Place{name: name, objects: o, clock: clock, warn: warn, dirty: true}
}

// Holds returns the manifest of the backup that the bucket has, nil if it has none.
func (p *Place) Holds(ctx context.Context) (*manifest.Manifest, error) {
	if !p.known {
		h, tag, err := readHead(ctx, p.objects, p.name)
		if err != nil {
			return nil, err
		}
		p.head, p.tag, p.known = h, tag, true
	}
	if p.head == nil {
		return nil, nil
	}
	return &p.head.Backup, nil
}

// Forget makes the next [Place.Holds] read the bucket again.
func (p *Place) Forget() { p.known = false }

// mostParts is how many parts a file has at most. Instead of one more part, the file is sent anew
// as one part.
const mostParts = 64

// Push sends the backup in a directory to the bucket. It must continue the backup that the bucket
// has, see [Place.Holds]. After an error the bucket still has a whole backup: the one before, or
// the new one if only the answer to the last write was lost.
func (p *Place) Push(ctx context.Context, dir string) error {
	if _, err := p.Holds(ctx); err != nil {
		return err
	}
	m, err := manifest.Read(dir)
	if err != nil {
		return err
	}
	if m == nil {
		return tga.Errorf(tga.NotFound, "%s holds no backup", dir)
	}
	next := &head{Format: Format, Backup: *m, Parts: make(map[string][]part, len(m.Files))}
	there := p.head.objects()
	p.dirty = true // BACKUP does not name what is sent until the end
	for _, f := range m.Files {
		if next.Parts[f.Name], err = p.file(ctx, filepath.Join(dir, "log", f.Name), f, there); err != nil {
			return err
		}
	}
	raw, err := manifest.Seal(next)
	if err != nil {
		return err
	}
	if len(raw) > maxHead {
		return tga.Errorf(tga.LimitExceeded, "%s: the list of the %d files of the backup has %d bytes, at most %d. The bucket keeps the backup that it has", p.name, len(m.Files), len(raw), maxHead)
	}
	p.known = false // if the next step fails, it is not known what the bucket has
	tag, err := p.objects.Swap(ctx, headName, raw, p.tag)
	if errors.Is(err, ErrChanged) {
		tag, err = p.written(ctx, raw, err)
	}
	if errors.Is(err, ErrChanged) {
		return tga.Errorf(tga.StateConcurrentExecution, "%s: another process has written the backup meanwhile: a bucket and a prefix are for one store, and for one daemon", p.name)
	}
	if err != nil {
		return unavailable(ctx, "write "+p.name+"/"+headName, err)
	}
	p.head, p.tag, p.known, p.sent = next, tag, true, true
	p.Sweep(ctx)
	return nil
}

// written finds out whether this process wrote the object BACKUP that is there now. That happens if
// the answer to the write was lost and the client library repeated the request.
func (p *Place) written(ctx context.Context, raw []byte, changed error) (tag string, err error) {
	h, tag, err := readHead(ctx, p.objects, p.name)
	if err != nil || h == nil {
		return "", errors.Join(changed, err)
	}
	if there, err := manifest.Seal(h); err != nil || !bytes.Equal(there, raw) {
		return "", errors.Join(changed, err)
	}
	return tag, nil
}

// file sends the part of a file that the bucket does not have. If the file grew, that is what comes
// after its old end.
func (p *Place) file(ctx context.Context, path string, f manifest.File, there map[string]bool) (parts []part, err error) {
	var before []part
	var was manifest.File
	if p.head != nil {
		before = p.head.Parts[f.Name]
		if i := slices.IndexFunc(p.head.Backup.Files, func(g manifest.File) bool { return g.Name == f.Name }); i >= 0 {
			was = p.head.Backup.Files[i]
		}
	}
	if len(before) > 0 && was == f {
		return before, nil
	}
	in, _, err := access.Open(path)
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "%w", err)
	}
	defer func() {
		if cerr := in.Close(); cerr != nil && err == nil {
			err = tga.Errorf(tga.StoreUnavailable, "%w", cerr)
		}
	}()
	from := was.Length
	whole, start, rest, err := digests(ctx, in, from, f.Length)
	if err != nil {
		return nil, err
	}
	if whole != f.SHA256 {
		return nil, damaged("%s is not what the manifest of the backup says", path)
	}
	if len(before) == 0 || len(before) >= mostParts || from >= f.Length || start != was.SHA256 {
		before, from, rest = nil, 0, whole
	}
	add := part{rest, f.Length - from}
	if !there[add.object()] {
		if err := p.put(ctx, add, io.NewSectionReader(in, from, add.Length)); err != nil {
			return nil, unavailable(ctx, "write "+p.name+"/"+add.object(), err)
		}
	}
	return append(slices.Clip(before), add), nil
}

// put sends a part, unless an earlier process sent it and ended before its backup was whole. Such
// an object has the right content, because its name is its digest.
func (p *Place) put(ctx context.Context, add part, body io.ReadSeeker) error {
	if !p.sent {
		if has, err := p.objects.Has(ctx, add.object()); has || err != nil {
			return err
		}
	}
	return p.objects.Put(ctx, add.object(), body, add.Length, add.digest())
}

// digests reads a file once and returns three digests: of its first n bytes, of the bytes before
// from, and of the bytes from there to n.
func digests(ctx context.Context, in io.ReaderAt, from, n int64) (whole, start, rest string, err error) {
	all, first, last := sha256.New(), sha256.New(), sha256.New()
	buf := make([]byte, 256<<10)
	for at := int64(0); at < n; {
		if err := ctx.Err(); err != nil {
			return "", "", "", err
		}
		end := n
		part := last
		if at < from {
			end, part = min(from, n), first
		}
		b := buf[:min(end-at, int64(len(buf)))]
		if _, err := in.ReadAt(b, at); err != nil {
			return "", "", "", tga.Errorf(tga.StoreUnavailable, "read a file of the backup: %w", err)
		}
		all.Write(b)
		part.Write(b)
		at += int64(len(b))
	}
	return text(all), text(first), text(last), nil
}

// grace is the age at which an object that BACKUP does not name may be deleted. A younger one may
// belong to a backup that somebody is reading.
const grace = 10 * time.Minute

// sweepRetry is the pause before deleting is retried after a failure.
const sweepRetry = time.Minute

// Sweep deletes the objects that are no part of the backup: parts of earlier backups, and parts of
// backups that were not finished. It lists the bucket only from time to time, because a list costs
// money. It also runs while the store has nothing new, because the bucket may still have what was
// erased from the store.
func (p *Place) Sweep(ctx context.Context) {
	now := p.clock()
	if !p.dirty || !p.known || p.head == nil || now.Before(p.sweep) {
		return
	}
	left, err := p.delete(ctx, now)
	if ctx.Err() != nil {
		return
	}
	said := ""
	if p.sweep = now.Add(grace); err != nil {
		p.sweep, said = now.Add(sweepRetry), err.Error()
	} else {
		p.dirty = left
	}
	if said != p.silent {
		p.silent = said
		p.warn(err)
	}
}

// delete deletes the objects that BACKUP does not name. left says that some are not old enough yet.
func (p *Place) delete(ctx context.Context, now time.Time) (left bool, err error) {
	keep, gone := p.head.objects(), map[string]bool{}
	for o, err := range p.objects.List(ctx, dataName) {
		if err != nil {
			return true, unavailable(ctx, "list "+p.name, err)
		}
		switch {
		case keep[o.Name]:
		case now.Sub(o.Changed) < grace:
			left = true
		default:
			gone[o.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		if err := p.objects.Delete(ctx, name); err != nil {
			return true, unavailable(ctx, "delete "+p.name+"/"+name, err)
		}
	}
	return left, nil
}
