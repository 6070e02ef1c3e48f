package bucket

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/backup/manifest"
	"github.com/tgad/tgad/schemas/tga"
)

// pulls is how often Pull begins again if the backup is replaced while it reads.
const pulls = 3

// Pull copies the backup of a bucket into a directory, which must exist and be empty. NOT_FOUND:
// the bucket has no backup. STATE_CHECKSUM_MISMATCH: an object is missing or has other content; the
// error names it.
func Pull(ctx context.Context, name string, o Objects, dir string) error {
	for try := 1; ; try++ {
		h, tag, err := readHead(ctx, o, name)
		if err != nil {
			return err
		}
		if h == nil {
			return tga.Errorf(tga.NotFound, "%s holds no backup: there is no object %s", name, headName)
		}
		err = h.pull(ctx, name, o, dir)
		if tga.CodeOf(err) != tga.StateChecksumMismatch || try == pulls {
			return err
		}
		if _, now, herr := readHead(ctx, o, name); herr != nil || now == tag {
			return err
		}
		if err := os.RemoveAll(filepath.Join(dir, "log")); err != nil {
			return tga.Errorf(tga.StoreUnavailable, "%w", err)
		}
	}
}

func (h *head) pull(ctx context.Context, name string, o Objects, dir string) error {
	log := filepath.Join(dir, "log")
	if err := os.MkdirAll(log, access.DirMode); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "%w", err)
	}
	for _, f := range h.Backup.Files {
		if err := h.pullFile(ctx, name, o, f, filepath.Join(log, f.Name)); err != nil {
			return err
		}
	}
	raw, err := h.Backup.Encode()
	if err != nil {
		return err
	}
	return write(filepath.Join(dir, manifest.Name), func(w io.Writer) error {
		_, err := w.Write(raw)
		return err
	})
}

// pullFile reads the parts of a file, and compares each part and the whole with its digest.
func (h *head) pullFile(ctx context.Context, name string, o Objects, f manifest.File, path string) error {
	whole := sha256.New()
	if err := write(path, func(w io.Writer) error {
		for _, p := range h.Parts[f.Name] {
			if err := p.pull(ctx, name, o, f.Name, io.MultiWriter(w, whole)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if text(whole) != f.SHA256 {
		return damaged("%s: the parts of %s are not what the backup says", name, f.Name)
	}
	return nil
}

func text(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// partTries is how often a part is read if reading fails.
const partTries = 3

// pull appends a part to a file.
func (p part) pull(ctx context.Context, name string, o Objects, of string, w io.Writer) error {
	buf, err := p.read(ctx, o)
	for try := 1; err != nil && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil && try < partTries; try++ {
		buf, err = p.read(ctx, o)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return damaged("%s/%s is gone: it has %d bytes of %s", name, p.object(), p.Length, of)
	case errors.Is(err, errOther):
		return damaged("%s/%s is another object: it should have %d bytes of %s", name, p.object(), p.Length, of)
	case err != nil:
		return unavailable(ctx, "read "+name+"/"+p.object(), err)
	}
	_, err = w.Write(buf)
	return err
}

// errOther says that an object does not have the digest that it is named by.
var errOther = errors.New("another content")

// read returns an object's content. A part is at most a segment of the log, 64 MiB, or one body.
func (p part) read(ctx context.Context, o Objects) (_ []byte, err error) {
	body, _, err := o.Get(ctx, p.object())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	buf, err := io.ReadAll(io.LimitReader(body, p.Length+1))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(buf); sum != p.digest() {
		return nil, errOther
	}
	return buf, nil
}

// write makes a file, synced.
func write(path string, fill func(io.Writer) error) error {
	f, err := access.Create(path)
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "%w", err)
	}
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil && tga.CodeOf(err) == "" {
		err = tga.Errorf(tga.StoreUnavailable, "write %s: %w", path, err)
	}
	return err
}
