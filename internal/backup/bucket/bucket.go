// Package bucket keeps a backup as objects of a bucket, and makes a directory of it again.
//
// # Format
//
// An object data/SHA256 holds a part of a file of the backup, and is named by its content. The
// object BACKUP says what the backup is: a line of JSON and, on a second line, the SHA-256 of the
// first. It has the manifest of the backup (package manifest) and, for each of its files, the parts
// that it consists of, one after the other. It is written last, in place of the one before, and what
// nobody names any more is deleted after that. So the bucket has the backup before or this one,
// whenever the work ends.
//
// # Invariants
//
//	whole   BACKUP names objects that are there, and was written after them  [Place.Push] TestCrashAtEachRequest
//	found   what is gone or changed is told with its name, and no backup     [Pull]       TestEveryLostObjectIsNamed
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

// Objects is what a backup needs of a service that keeps objects. Their names begin with a prefix
// that the service adds. Its methods may be called concurrently.
type Objects interface {
	// Put writes an object, whole or not at all. The service makes sure that it has the digest.
	Put(ctx context.Context, name string, body io.ReadSeeker, size int64, sha256 [32]byte) error
	// Has reports whether an object is there now.
	Has(ctx context.Context, name string) (bool, error)
	// Swap writes an object in place of the one that has a tag; "" is none. [ErrChanged]: there is
	// another one. A service that knows no conditions writes it all the same.
	Swap(ctx context.Context, name string, body []byte, tag string) (next string, err error)
	// Get reads an object; fs.ErrNotExist where it is not there.
	Get(ctx context.Context, name string) (body io.ReadCloser, tag string, err error)
	// List yields the objects whose names begin with a text, perhaps not the newest ones, perhaps
	// some that were deleted.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Delete removes an object; nil where it is not there.
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

// Is reports whether a place is a bucket and no directory.
func Is(place string) bool { return strings.HasPrefix(place, Scheme) }

// Parse reads an address s3://BUCKET/PREFIX. The prefix ends with a slash or is "".
func Parse(address string) (bucket, prefix string, err error) {
	u, err := url.Parse(address)
	if err != nil || !Is(address) || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Contains(u.Path, "//") {
		// The address is not repeated: somebody may have put a secret into it.
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

// head is the object that says what the backup is.
type head struct {
	Format string            `json:"format"`
	Backup manifest.Manifest `json:"backup"`
	Parts  map[string][]part `json:"parts"` // of each file of the backup, in order
}

// part is a part of a file: the object that is named by its digest.
type part struct {
	SHA256 string `json:"sha256"`
	Length int64  `json:"length"`
}

func (p part) object() string { return dataName + p.SHA256 }

func (p part) digest() (d [32]byte) {
	if n, err := hex.Decode(d[:], []byte(p.SHA256)); err != nil || n != len(d) {
		return [32]byte{} // of no content: it is found to differ
	}
	return d
}

// objects are the names of all that a backup consists of; nil of none.
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

// maxHead bounds the object that says what the backup is.
const maxHead = 64 << 20

// readHead reads what a bucket is the backup of; nil where there is none.
func readHead(ctx context.Context, o Objects, place string) (h *head, tag string, err error) {
	body, tag, err := o.Get(ctx, headName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", unavailable(ctx, "read "+place+"/"+headName, err)
	}
	raw, err := io.ReadAll(io.LimitReader(body, maxHead))
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

// unavailable says that the service failed; the end of ctx is told as it is.
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
