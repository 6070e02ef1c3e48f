// Package filecheck looks at files under a root.
//
//	[[verifier]]
//	resource_type = "file"
//	type          = "file"
//	root          = "/srv/documents"
//	max_bytes     = 1073741824            # most that is read for a digest; 1 GiB
//	ignore        = []                    # of "etag" and "version"
//	timeout, tries, delay, max_delay, settle, settle_every as in package httpcheck
//
// A change's resource_id is a path below root with slashes: no leading slash, no "." or
// ".." in it. Its version is the SHA-256 of the content in hex. Its etag is the size in
// bytes, the modification time in RFC 3339, or both as "12 2026-01-15T19:00:00.5Z"; a
// time is compared to as many digits as it has. A change without version and etag stands
// if the path exists; it may be a directory. A change with one of them needs a regular
// file.
//
// If the root cannot be opened, the verifier cannot tell: the disk may not be mounted. (An
// empty mount point can be opened; use a root below it.) A file that changes while it is
// read is read again.
//
// # Invariants
//
//	inside  nothing outside root is opened, through a link or ..   os.Root      TestNothingOutsideIsRead
//	still   a digest is of a content that did not change meanwhile [look.digest] TestFileThatChangesIsReadAgain, TestFileThatGrowsIsNoAnswer
package filecheck

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// DefaultMaxBytes is the most that is read for a digest.
const DefaultMaxBytes = 1 << 30

// Config describes a verifier; see the package's comment.
type Config struct {
	Root     string   `toml:"root"`
	MaxBytes int64    `toml:"max_bytes"`
	Ignore   []string `toml:"ignore"`
	verify.Patience
}

type look struct{ Config }

// New makes a verifier, VALIDATION_ERROR where the configuration is wrong.
func New(c Config) (runtime.Verifier, error) {
	if c.Root == "" {
		return nil, verify.Invalid("root", "want a directory")
	}
	c.MaxBytes = cmp.Or(c.MaxBytes, DefaultMaxBytes)
	if c.MaxBytes < 0 {
		return nil, verify.Invalid("max_bytes", "%d is negative", c.MaxBytes)
	}
	if err := verify.CheckIgnored(c.Ignore); err != nil {
		return nil, err
	}
	patience, err := c.Complete()
	if err != nil {
		return nil, err
	}
	return verify.NewVerifier((&look{c}).ask, patience), nil
}

func (l *look) ask(ctx context.Context, change tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
	source := "stat " + change.ResourceID + " under " + l.Root
	fail := func(err error) (runtime.Finding, runtime.Evidence, error) {
		return runtime.CannotTell, verify.Evidence(source, map[string]any{"why": "no answer"}, nil, nil), err
	}
	if !fs.ValidPath(change.ResourceID) || strings.ContainsRune(change.ResourceID, 0) {
		return fail(tga.Errorf(tga.ValidationError, "resource id %.200q: want a path below the root, without . and ..", change.ResourceID))
	}
	mark, err := parseMark(change.ETag)
	if err != nil && !slices.Contains(l.Ignore, "etag") {
		return fail(err)
	}
	// Open the root for each question, so that a disk mounted over it since is seen.
	root, err := os.OpenRoot(l.Root)
	if err != nil {
		return fail(fmt.Errorf("root: %w", err))
	}
	defer root.Close()

	seen := map[string]any{}
	finding, why, err := l.judge(ctx, root, change, mark, seen)
	if err != nil {
		return fail(err)
	}
	seen["why"] = why
	return finding, verify.Evidence(source, seen, nil, nil), nil
}

// judge looks at the file, notes in seen what it saw, and says what that means.
func (l *look) judge(ctx context.Context, root *os.Root, change tga.StateChange, mark mark, seen map[string]any) (runtime.Finding, string, error) {
	info, err := root.Stat(change.ResourceID)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return runtime.Gone, "it is not there", nil
	}
	if err != nil {
		return runtime.CannotTell, "", err
	}
	seen["mode"], seen["size"] = info.Mode().String(), strconv.FormatInt(info.Size(), 10)
	seen["mtime"] = info.ModTime().UTC().Format(time.RFC3339Nano)
	wantVersion := change.Version != "" && !slices.Contains(l.Ignore, "version")
	wantMark := change.ETag != "" && !slices.Contains(l.Ignore, "etag")
	if !wantVersion && !wantMark {
		return runtime.Exists, "it is there", nil
	}
	if !info.Mode().IsRegular() {
		return runtime.Changed, "it is no regular file", nil
	}
	if wantMark && !mark.is(info) {
		return runtime.Changed, "size or modification time is another", nil
	}
	if !wantVersion {
		return runtime.Exists, "size and modification time are the same", nil
	}
	if !digestForm.MatchString(change.Version) {
		return runtime.CannotTell, "the version is no SHA-256 in hex", nil
	}
	if info.Size() > l.MaxBytes {
		return runtime.CannotTell, fmt.Sprintf("it has more than %d bytes", l.MaxBytes), nil
	}
	sum, err := l.digest(ctx, root, change.ResourceID, info)
	if err != nil {
		return runtime.CannotTell, "", err
	}
	seen["sha256"] = sum
	if !strings.EqualFold(sum, change.Version) {
		return runtime.Changed, "the content is another", nil
	}
	return runtime.Exists, "the content is the same", nil
}

var digestForm = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// digest returns the SHA-256 of the file that info describes. The error is transient if
// the file was replaced or changed meanwhile.
func (l *look) digest(ctx context.Context, root *os.Root, name string, info fs.FileInfo) (string, error) {
	// The name may be a pipe by now. Opening a pipe must not wait for a writer.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", verify.Transient(err)
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !os.SameFile(info, before) || !before.Mode().IsRegular() {
		return "", verify.Transient(fmt.Errorf("%s was replaced meanwhile", name))
	}
	sum := sha256.New()
	n, err := io.Copy(sum, &reader{ctx, io.LimitReader(f, l.MaxBytes+1)})
	if err != nil {
		return "", err
	}
	after, err := f.Stat()
	if err != nil {
		return "", err
	}
	if n != before.Size() || after.Size() != n || !after.ModTime().Equal(before.ModTime()) {
		return "", verify.Transient(fmt.Errorf("%s changed while it was read", name))
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// reader ends a long read with its context.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r *reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// mark is what an etag says of a file.
type mark struct {
	size     int64 // -1 = nothing
	time     time.Time
	resolves time.Duration // of time; 0 = there is none
}

// parseMark reads an etag: a size, a time, or both.
func parseMark(etag string) (mark, error) {
	m := mark{size: -1}
	if etag == "" {
		return m, nil
	}
	bad := tga.Errorf(tga.ValidationError, "etag %.80q of a file: want its size in bytes, its modification time in RFC 3339, or both", etag)
	size, when, both := strings.Cut(etag, " ")
	if n, err := strconv.ParseInt(size, 10, 64); err == nil && n >= 0 {
		if m.size = n; !both {
			return m, nil
		}
	} else if both {
		return m, bad
	} else {
		when = size
	}
	var err error
	if m.time, err = time.Parse(time.RFC3339Nano, when); err != nil {
		return m, bad
	}
	m.resolves = time.Second
	if _, fraction, ok := strings.Cut(when, "."); ok {
		for _, c := range fraction {
			if c < '0' || c > '9' || m.resolves == 1 {
				break
			}
			m.resolves /= 10
		}
	}
	return m, nil
}

func (m mark) is(info fs.FileInfo) bool {
	if m.size >= 0 && m.size != info.Size() {
		return false
	}
	return m.resolves == 0 || info.ModTime().Truncate(m.resolves).Equal(m.time)
}
