package wal

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// pageLen is the unit in which segments are written, in bytes: every disk and file system
// accepts writes of it. The kernel writes whole pages in any case.
const pageLen = 4096

// pages is memory for whole pages. It begins at a multiple of pageLen, as a write that
// bypasses the kernel's cache requires. The zero value is empty.
type pages []byte

// room returns b with room for n bytes, rounded up to whole pages. Its content is undefined.
func (b pages) room(n int) pages {
	n = (n + pageLen - 1) &^ (pageLen - 1)
	if n <= cap(b) {
		return b[:n]
	}
	size := max(n, 2*cap(b))
	raw := make([]byte, size+pageLen-1)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(raw)))) & (pageLen - 1)
	return raw[skip : skip+n : skip+size]
}

// pageFile writes whole pages of a file and bypasses the kernel's cache (O_DIRECT) if the file
// system can. A write through the cache copies each byte, and first allocates memory for a page
// that is not cached: a segment of zeros costs thirty times the CPU that way. The sync after it
// has to find the pages it must write, and takes a fifth longer.
//
// Readers go through the cache. They see a write as soon as it has returned, because the kernel
// drops the cached pages that a direct write covers.
type pageFile struct {
	vfs.File
	direct bool
}

// pagesOf wraps f for writes of whole pages, which bypass the cache if possible.
func pagesOf(f vfs.File) *pageFile {
	return &pageFile{File: f, direct: f.Fd() != vfs.InvalidFd && setDirect(f.Fd(), true) == nil}
}

// writeAt writes b at an offset. Both must be whole pages.
func (f *pageFile) writeAt(b pages, at int64) error {
	n, err := f.File.WriteAt(b, at)
	if f.refused(err) {
		_, err = f.File.WriteAt(b[n:], at+int64(n))
	}
	return err
}

// write writes b, whole pages, at the current offset of the file.
func (f *pageFile) write(b pages) error {
	n, err := f.File.Write(b)
	if f.refused(err) {
		_, err = f.File.Write(b[n:])
	}
	return err
}

// refused reports whether err says that the file system does not take such a direct write, and
// makes all later writes go through the cache. Some file systems accept the flag and then refuse
// the write. Some want multiples of more than a page.
func (f *pageFile) refused(err error) bool {
	if !f.direct || !errors.Is(err, syscall.EINVAL) {
		return false
	}
	f.direct = false
	return setDirect(f.Fd(), false) == nil
}
