package wal

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"math"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// A body over [MaxInline] has a file of its own beside the segments, `<id>.body`, which is
// durable before the record that names it. So one large answer does not delay the commits of
// other calls. The file holds the key that it belongs to. Once the row of that key names
// another body, or none, the file is garbage and [Log.Sweep] removes it.
//
//	 0  magic "TGADBODY" [8]
//	 8  version [4] = 1   length of the key [4]
//	16  id [16]
//	32  SHA-256 of the body [32]
//	64  length of the body [8]
//	72  CRC-32C of the bytes before it, and of the key [4]   zeros [4]
//	80  the key, the body
const (
	bodyMagic  = "TGADBODY"
	bodyHeader = 80

	bodySuffix  = ".body"
	unfinished  = ".new" // of a file that is being written
	bodyIDLen   = 32     // hex
	maxBodyFile = math.MaxInt64 / 2
)

func bodyName(id tga.ID) string { return hex.EncodeToString(id[:]) + bodySuffix }

// parseBodyName reads the name of a body's file.
func parseBodyName(name string) (id tga.ID, ok bool) {
	digits, ok := strings.CutSuffix(name, bodySuffix)
	b, err := hex.DecodeString(digits)
	if !ok || err != nil || len(digits) != bodyIDLen {
		return id, false
	}
	id = tga.ID(b)
	return id, name == bodyName(id)
}

// WriteFile makes the body of a key durable in a file of its own, for [Ops.PutFile]. If no
// record is written that names the file, remove it with [Log.DropFile]. Many goroutines may
// call WriteFile at once.
func (l *Log) WriteFile(key, body []byte) (File, error) {
	f := File{Digest: sha256.Sum256(body), Length: uint64(len(body))}
	if err := l.opts.Random(f.ID[:]); err != nil {
		return f, tga.Errorf(tga.StoreUnavailable, "log: draw an id: %w", err)
	}
	l.mu.Lock()
	l.fresh[f.ID] = true
	l.mu.Unlock()
	if err := l.files.writeBody(f, key, body); err != nil {
		return f, errors.Join(unavailable("write "+bodyName(f.ID), err), l.DropFile(f))
	}
	return f, nil
}

func (d files) writeBody(f File, key, body []byte) error {
	name := d.path(bodyName(f.ID))
	out, err := d.fs.Create(name+unfinished, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	err = write(out, f.header(key))
	if err == nil {
		err = write(out, body)
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	if err := d.fs.Rename(name+unfinished, name); err != nil {
		return err
	}
	return d.sync()
}

func (f *File) header(key []byte) []byte {
	b := append([]byte(bodyMagic), 0, 0, 0, tga.LogBodyVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(key)))
	b = append(b, f.ID[:]...)
	b = append(b, f.Digest[:]...)
	b = binary.BigEndian.AppendUint64(b, f.Length)
	sum := crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, key)
	b = binary.BigEndian.AppendUint32(b, sum)
	return append(append(b, 0, 0, 0, 0), key...)
}

// DropFile removes a body's file that no record names. It need not be there.
func (l *Log) DropFile(f File) error {
	var err error
	for _, name := range []string{bodyName(f.ID), bodyName(f.ID) + unfinished} {
		if e := l.unlink(name, nil); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.fresh, f.ID)
	return err
}

// Body is the open file of a body. [Body.Bytes] checks the digest of the bytes. [Body.ReadAt]
// returns unchecked bytes: its callers have checksums of their own.
type Body struct {
	file vfs.File
	f    File
	at   int64
}

// OpenFile opens the file of a key's body. STATE_CHECKSUM_MISMATCH: the file is missing, belongs to another key or body, or
// the disk does not give it.
func (l *Log) OpenFile(f File, key []byte) (*Body, error) {
	file, got, has, err := l.files.openBody(f.ID)
	if err != nil {
		return nil, valueError(err)
	}
	if got != f || string(has) != string(key) {
		return nil, errors.Join(damaged("%s is not the body of that key", bodyName(f.ID)), closing(file))
	}
	return &Body{file, f, int64(bodyHeader + len(key))}, nil
}

// openBody opens a body's file and reads its header: the file's description and its key.
func (d files) openBody(id tga.ID) (file vfs.File, f File, key []byte, err error) {
	name := bodyName(id)
	if file, err = d.fs.Open(d.path(name)); errors.Is(err, fs.ErrNotExist) {
		return nil, f, nil, damaged("%s is missing", name)
	}
	if err != nil {
		return nil, f, nil, unavailable("open "+name, err)
	}
	if f, key, err = readBodyHeader(file, id); err != nil {
		return nil, f, nil, errors.Join(err, closing(file))
	}
	return file, f, key, nil
}

func readBodyHeader(file vfs.File, id tga.ID) (f File, key []byte, err error) {
	info, err := file.Stat()
	if err != nil {
		return f, nil, unavailable("look at "+bodyName(id), err)
	}
	var h [bodyHeader]byte
	if info.Size() < bodyHeader {
		return f, nil, damaged("%s has %d bytes", bodyName(id), info.Size())
	}
	if err := readFull(file, h[:], 0); err != nil {
		return f, nil, err
	}
	if v := binary.BigEndian.Uint32(h[8:]); string(h[:8]) == bodyMagic && v != tga.LogBodyVersion {
		return f, nil, tga.Errorf(tga.FormatTooNew, "%s has version %d, this program knows %d", bodyName(id), v, tga.LogBodyVersion)
	}
	n := int64(binary.BigEndian.Uint32(h[12:]))
	f = File{ID: tga.ID(h[16:32]), Digest: [32]byte(h[32:64]), Length: binary.BigEndian.Uint64(h[64:])}
	if n > math.MaxUint8 || f.Length > maxBodyFile || info.Size() != bodyHeader+n+int64(f.Length) {
		return f, nil, damaged("%s has %d bytes", bodyName(id), info.Size())
	}
	key = make([]byte, n)
	if err := readFull(file, key, bodyHeader); err != nil {
		return f, nil, err
	}
	if want := f.header(key); string(want[:bodyHeader]) != string(h[:]) || f.ID != id {
		return f, nil, damaged("%s: its header is damaged", bodyName(id))
	}
	return f, key, nil
}

// Len is the length of the body, in bytes.
func (b *Body) Len() int64 { return int64(b.f.Length) }

// ReadAt reads at an offset in the body.
func (b *Body) ReadAt(p []byte, off int64) (int, error) {
	n, err := io.NewSectionReader(b.file, b.at, b.Len()).ReadAt(p, off)
	if err != nil && err != io.EOF {
		err = valueError(unread(err))
	}
	return n, err
}

// Bytes reads the whole body and checks it. STATE_CHECKSUM_MISMATCH: the digest differs, or the disk does not give it.
func (b *Body) Bytes() ([]byte, error) {
	out := make([]byte, b.f.Length)
	if err := readFull(b.file, out, b.at); err != nil {
		return nil, valueError(err)
	}
	if sha256.Sum256(out) != b.f.Digest {
		return nil, damaged("%s does not have its digest", bodyName(b.f.ID))
	}
	return out, nil
}

// Close closes the file.
func (b *Body) Close() error { return closing(b.file) }

// ReadFile returns the body of a key that has a file of its own.
func (l *Log) ReadFile(f File, key []byte) (body []byte, err error) {
	b, err := l.OpenFile(f, key)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return b.Bytes()
}

// Sweep removes the body files for which live returns false: files that a crash left before a
// record named them, and files that the index no longer names. Before it removes such a file
// it waits until every pin held now was given back. A file whose header cannot be read stays:
// it is evidence of damage. A file that the disk cannot read stays too; Sweep says so in the log's
// messages, counts it, and goes on with the others. live must know the rows of every record that was appended before Sweep
// asks it.
func (l *Log) Sweep(ctx context.Context, live func(key []byte, f File) (bool, error)) (removed, unread int, err error) {
	names, err := l.opts.FS.List(l.opts.Dir)
	if err != nil {
		return 0, 0, unavailable("list "+l.opts.Dir, err)
	}
	// A file that is not fresh now is either named by a record already, so that live knows
	// it, or never will be.
	l.mu.Lock()
	fresh := maps.Clone(l.fresh)
	l.mu.Unlock()
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return removed, unread, err
		}
		id, ok := parseBodyName(strings.TrimSuffix(name, unfinished))
		if !ok || fresh[id] {
			continue
		}
		if !strings.HasSuffix(name, unfinished) {
			keep, err := l.files.keeps(id, live)
			if errors.Is(err, errUnread) {
				l.opts.Logger.Error("a file of the log cannot be read, and stays", "file", name, "error", err)
				unread++
				continue
			}
			if err != nil {
				return removed, unread, err
			}
			if keep {
				continue
			}
			if err := l.handles.quiet(ctx); err != nil {
				return removed, unread, err
			}
		}
		err := l.unlink(name, nil)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it got its name since the directory was listed
		}
		if err != nil {
			return removed, unread, err
		}
		removed++
	}
	return removed, unread, nil
}

// keeps reports whether a body's file has to stay.
func (d files) keeps(id tga.ID, live func(key []byte, f File) (bool, error)) (bool, error) {
	file, f, key, err := d.openBody(id)
	if tga.CodeOf(err) == tga.StateChecksumMismatch {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	keep, err := live(key, f)
	return keep, errors.Join(err, closing(file))
}

// named notes that a record names these files now.
func (l *Log) named(list []File) {
	if len(list) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range list {
		delete(l.fresh, f.ID)
	}
}

// String names the file.
func (f File) String() string { return fmt.Sprintf("%s of %d bytes", bodyName(f.ID), f.Length) }
