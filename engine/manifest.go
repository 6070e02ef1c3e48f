package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// manifestName is the file that makes a directory a backup. It is written last: until then the
// directory is the backup that the manifest before says.
const manifestName = "BACKUP"

const manifestFormat = "tgad.backup." + tga.BackupVersion

// manifest says what a backup consists of. The file is one line of JSON and, on a second line,
// the SHA-256 of the first.
type manifest struct {
	Format   string         `json:"format"`   // manifestFormat
	Store    tga.ID         `json:"store"`    // the store that was copied
	Timeline tga.ID         `json:"timeline"` // of its log
	Made     tga.Millis     `json:"made"`     // when, by the store's clock
	End      manifestEnd    `json:"end"`      // the newest record that the backup has
	Files    []manifestFile `json:"files"`    // of log/
}

type manifestEnd struct {
	Group   uint64 `json:"group"`
	Sum     uint32 `json:"sum"`
	Segment uint64 `json:"segment"`
	From    uint32 `json:"from"` // the record's first byte, and the one behind it
	To      uint32 `json:"to"`
}

// manifestFile is one file. It may be longer than that: the copy of the segment that was
// written to goes on in the next backup.
type manifestFile struct {
	Name   string `json:"name"`
	Length int64  `json:"length"`
	SHA256 string `json:"sha256"` // of so many bytes
}

// manifest describes a copy of the log of a store.
func (b *backup) manifest(end wal.Position, list []wal.CopiedFile) *manifest {
	m := &manifest{
		Format: manifestFormat, Store: b.store, Timeline: b.log.Timeline(), Made: b.times.now(),
		End: manifestEnd{end.Group, end.Sum, end.Segment, end.Start, end.End},
	}
	for _, f := range list {
		m.Files = append(m.Files, manifestFile{f.Name, f.Length, hex.EncodeToString(f.Digest[:])})
	}
	return m
}

// end is the position of the newest record; the zero one of no backup.
func (m *manifest) end() wal.Position {
	if m == nil {
		return wal.Position{}
	}
	return wal.Position{Segment: m.End.Segment, Start: m.End.From, End: m.End.To, Group: m.End.Group, Sum: m.End.Sum}
}

func (m *manifest) mark() guard.Mark {
	return guard.Mark{StoreID: m.Store, Timeline: m.Timeline, Group: m.End.Group, Sum: m.End.Sum}
}

// files are the files of the copy, by name.
func (m *manifest) files() map[string]wal.CopiedFile {
	out := map[string]wal.CopiedFile{}
	if m == nil {
		return out
	}
	for _, f := range m.Files {
		c := wal.CopiedFile{Name: f.Name, Length: f.Length}
		if n, err := hex.Decode(c.Digest[:], []byte(f.SHA256)); err == nil && n == len(c.Digest) {
			out[f.Name] = c
		}
	}
	return out
}

// write puts the manifest in place of the one before: after a crash it is that or this one.
func (m *manifest) write(fs vfs.FS, dir string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(b)
	b = append(b, '\n')
	b = append(hex.AppendEncode(b, sum[:]), '\n')
	path := fs.PathJoin(dir, manifestName)
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

// readManifest reads what a directory is a backup of; nil where it has no manifest.
// STATE_CHECKSUM_MISMATCH: it is damaged. FORMAT_TOO_NEW: a later version wrote it.
func readManifest(fs vfs.FS, dir string) (*manifest, error) {
	path := fs.PathJoin(dir, manifestName)
	f, err := fs.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "backup %s: %w", path, err)
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "backup %s: %w", path, err)
	}
	line, rest, _ := bytes.Cut(b, []byte("\n"))
	sum := sha256.Sum256(line)
	if string(rest) != hex.EncodeToString(sum[:])+"\n" {
		return nil, damaged("backup %s: the manifest does not have its digest", path)
	}
	m := &manifest{}
	if err := json.Unmarshal(line, m); err != nil {
		return nil, damaged("backup %s: %w", path, err)
	}
	if m.Format != manifestFormat {
		return nil, tga.Errorf(tga.FormatTooNew, "backup %s: the manifest is %q, this program knows %q", path, m.Format, manifestFormat)
	}
	if len(m.files()) != len(m.Files) {
		return nil, damaged("backup %s: the digest of a file is none, or a file is there twice", path)
	}
	return m, nil
}
