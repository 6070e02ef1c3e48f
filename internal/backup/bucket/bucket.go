// Package bucket keeps a backup as objects of a bucket, and restores it to a directory.
//
// # Format
//
// An object data/SHA256 holds a part of a file of the backup. Its name is the digest of its content.
// The object BACKUP describes the backup: a line of JSON and, on a second line, the SHA-256 of the
// first. It has the manifest of the backup (package manifest) and, for each file, the list of its
// parts in order. BACKUP is written last and replaces the one before. After that, parts that BACKUP no
// longer names are deleted. So the bucket has either the backup before or the new one, wherever the
// work stops.
//
// # Invariants
//
//	whole   BACKUP names objects that are there, and was written after them  [Place.Push] TestCrashAtEachRequest
//	found   a lost or changed object is an error that names it               [Pull]       TestEveryLostObjectIsNamed
//	one     BACKUP is replaced only if it is the one that was read           [Objects]    TestTwoWritersOfOneBucket
//	new     what the bucket has is not sent again                            [Place.Push] TestOnlyWhatIsNewIsSent
package bucket

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/backup/manifest"
	"github.com/tgad/tgad/schemas/tga"
)

// Objects is what a backup needs of an object store. The implementation adds a prefix to the names.
// Its methods may be called concurrently.
type Objects interface {
	// Put writes an object, whole or not at all. The service checks the digest.
	Put(ctx context.Context, name string, body io.ReadSeeker, size int64, sha256 [32]byte) error
	// Has reports whether an object is there now.
	Has(ctx context.Context, name string) (bool, error)
	// Swap replaces the object that has a tag; "" means that there must be no object.
	// [ErrChanged]: the object there is another one. A service without conditional writes
	// replaces it in any case.
	Swap(ctx context.Context, name string, body []byte, tag string) (next string, err error)
	// Get reads an object. The error is fs.ErrNotExist if it does not exist.
	Get(ctx context.Context, name string) (body io.ReadCloser, tag string, err error)
	// List yields the objects whose names begin with a prefix. It may lack the newest objects, and
	// may have some that were deleted.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Delete removes an object. It is no error if the object does not exist.
	Delete(ctx context.Context, name string) error
}

// Object is one object of a list.
type Object struct {
	Name    string
	Changed time.Time
}

// ErrChanged says that an object is not the one that was to be replaced.
var ErrChanged = errors.New("another object is there")

// Scheme begins the address of a bucket.
const Scheme = "s3://"

// Is reports whether a place is the address of a bucket, not a directory.
func Is(place string) bool { return strings.HasPrefix(place, Scheme) }

// Parse reads an address s3://BUCKET/PREFIX. The prefix ends with a slash or is "".
func Parse(address string) (bucket, prefix string, err error) {
	u, err := url.Parse(address)
	if err != nil || !Is(address) || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Contains(u.Path, "//") {
		// Do not repeat the address: it may have a secret in it.
		return "", "", tga.Errorf(tga.ValidationError, "want s3://BUCKET/PREFIX, without a password")
	}
	if prefix = strings.Trim(u.Path, "/"); prefix != "" {
		prefix += "/"
	}
	return u.Host, prefix, nil
}

// Format is the format's name and version.
const Format = "tgad.bucket." + tga.BucketVersion

// Names of objects.
const (
	headName = "BACKUP"
	dataName = "data/"
)

// head is the object that describes the backup.
type head struct {
	Format string            `json:"format"`
	Backup manifest.Manifest `json:"backup"`
	Parts  map[string][]part `json:"parts"` // of each file of the backup, in order
}

// part is a part of a file: the object that has the digest as its name.
type part struct {
	SHA256 string `json:"sha256"`
	Length int64  `json:"length"`
}

func (p part) object() string { return dataName + p.SHA256 }

func (p part) digest() (d [32]byte) {
	if n, err := hex.Decode(d[:], []byte(p.SHA256)); err != nil || n != len(d) {
		return [32]byte{} // no content has this digest, so the part is found to differ
	}
	return d
}

// objects returns the names of all parts of a backup. h may be nil.
func (h *head) objects() map[string]bool {
	all := map[string]bool{}
	if h != nil {
		for _, parts := range h.Parts {
			for _, p := range parts {
				all[p.object()] = true
			}
		}
	}
	return all
}

// maxHead bounds the object that describes the backup, in bytes. A longer one is not written, because nobody would read it.
var maxHead = 64 << 20 // a test has a smaller one

// readHead reads the description of a bucket's backup. It returns nil if there is none.
func readHead(ctx context.Context, o Objects, place string) (h *head, tag string, err error) {
	body, tag, err := o.Get(ctx, headName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", unavailable(ctx, "read "+place+"/"+headName, err)
	}
	raw, err := io.ReadAll(io.LimitReader(body, int64(maxHead)))
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, "", unavailable(ctx, "read "+place+"/"+headName, err)
	}
	h, at := &head{}, place+"/"+headName
	if err := manifest.Unseal(raw, at, h); err != nil {
		return nil, "", err
	}
	if h.Format != Format {
		return nil, "", tga.Errorf(tga.FormatTooNew, "%s is %q, this program knows %q", at, h.Format, Format)
	}
	if err := h.Backup.Check(at); err != nil {
		return nil, "", err
	}
	for _, f := range h.Backup.Files {
		n := int64(0)
		for _, p := range h.Parts[f.Name] {
			n += p.Length
		}
		if n != f.Length {
			return nil, "", damaged("%s: the parts of %s have %d bytes, it has %d", at, f.Name, n, f.Length)
		}
	}
	return h, tag, nil
}

// unavailable makes the error for a failed service. If ctx has ended, it returns ctx's error.
func unavailable(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return tga.Errorf(tga.StoreUnavailable, "%s: %w", what, err)
}

func damaged(format string, args ...any) error {
	err := tga.Errorf(tga.StateChecksumMismatch, format, args...)
	err.Where = "stored"
	return err
}
