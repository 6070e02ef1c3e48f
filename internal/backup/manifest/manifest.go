// Package manifest reads and writes the file that lists what a backup of a store consists of.
package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/schemas/tga"
)

// Name is the file that makes a directory a backup. It is written last: until then the directory
// is the backup that the earlier manifest describes.
const Name = "BACKUP"

// Format is the format's name and version.
const Format = "tgad.backup." + tga.BackupVersion

// Manifest lists what a backup consists of. The file is one line of JSON and, on a second line,
// the SHA-256 of the first.
type Manifest struct {
	Format   string     `json:"format"`   // Format
	Store    tga.ID     `json:"store"`    // the store that was copied
	Timeline tga.ID     `json:"timeline"` // of its log
	Made     tga.Millis `json:"made"`     // when it was begun, by the store's clock: what was acknowledged by then is in it
	End      End        `json:"end"`      // the newest record that the backup has
	Files    []File     `json:"files"`    // of log/
}

// End is the place of a record.
type End struct {
	Group   uint64 `json:"group"`
	Sum     uint32 `json:"sum"`
	Segment uint64 `json:"segment"`
	From    uint32 `json:"from"` // offset of the record's first byte
	To      uint32 `json:"to"`   // offset behind its last byte
}

// File is one file of the backup. The file on disk may be longer than Length: the next backup
// appends to the copy of the segment that the store is still writing.
type File struct {
	Name   string `json:"name"`
	Length int64  `json:"length"`
	SHA256 string `json:"sha256"` // of the first Length bytes
}

// Digest returns the SHA-256 of a file. ok is false if the manifest's value is no digest.
func (f File) Digest() (d [32]byte, ok bool) {
	n, err := hex.Decode(d[:], []byte(f.SHA256))
	return d, err == nil && n == len(d)
}

// Encode returns the content of the file.
func (m *Manifest) Encode() ([]byte, error) { return Seal(m) }

// Seal returns a line of JSON and, on a second line, the SHA-256 of the first.
func Seal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	b = append(b, '\n')
	return append(hex.AppendEncode(b, sum[:]), '\n'), nil
}

// Unseal reads what [Seal] returned into v. path is for errors. STATE_CHECKSUM_MISMATCH: it is
// damaged.
func Unseal(b []byte, path string, v any) error {
	line, rest, _ := bytes.Cut(b, []byte("\n"))
	sum := sha256.Sum256(line)
	if string(rest) != hex.EncodeToString(sum[:])+"\n" {
		return damaged("backup %s: the manifest does not have its digest", path)
	}
	if err := json.Unmarshal(line, v); err != nil {
		return damaged("backup %s: %w", path, err)
	}
	return nil
}

// Read reads the manifest in a directory. It returns nil if there is none. The errors are those of
// [Decode], and STORE_UNAVAILABLE.
func Read(dir string) (*Manifest, error) {
	path := filepath.Join(dir, Name)
	b, err := access.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "backup %s: %w", path, err)
	}
	return Decode(b, path)
}

// Decode reads the content of the file at path. STATE_CHECKSUM_MISMATCH: it is damaged.
// FORMAT_TOO_NEW: a later version wrote it.
func Decode(b []byte, path string) (*Manifest, error) {
	m := &Manifest{}
	if err := Unseal(b, path, m); err != nil {
		return nil, err
	}
	return m, m.Check(path)
}

// Check reports what is wrong with a manifest that was read from path.
func (m *Manifest) Check(path string) error {
	if m.Format != Format {
		return tga.Errorf(tga.FormatTooNew, "backup %s: the manifest is %q, this program knows %q", path, m.Format, Format)
	}
	seen := map[string]bool{}
	for _, f := range m.Files {
		if _, ok := f.Digest(); !ok || seen[f.Name] || f.Name == "" || filepath.Base(f.Name) != f.Name {
			return damaged("backup %s: the name or the digest of a file is none, or a file is there twice", path)
		}
		seen[f.Name] = true
	}
	return nil
}

func damaged(format string, args ...any) *tga.Error {
	err := tga.Errorf(tga.StateChecksumMismatch, format, args...)
	err.Where = "stored"
	return err
}
