package wal

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// pageLen is the unit in which segments are written, in bytes: what every disk and file system
// takes for whole. The kernel writes whole pages in any case.
const pageLen = 4096

// pages is memory for whole pages that begins at a multiple of pageLen, as a write past the
// kernel's cache asks for. The zero value is empty.
type pages []byte

// room returns b with room for n bytes, rounded up to whole pages. What was in b is gone.
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

// pageFile writes whole pages of a file past the kernel's cache where the file system can do
// that. A write through the cache copies each byte, and for a page that is not in the cache it
// finds memory first: a segment of zeros made so costs thirty times the CPU. The sync after it
// has to find what it must write, and takes a fifth longer.
//
// Readers go through the cache. They see what a write has made as soon as it has returned: the
// kernel drops cached pages that such a write covers.
type pageFile struct {
	vfs.File
	direct bool
}

// pagesOf is f, about to be written in whole pages.
func pagesOf(f vfs.File) *pageFile {
	return &pageFile{File: f, direct: f.Fd() != vfs.InvalidFd && setDirect(f.Fd(), true) == nil}
}

// writeAt writes b, whole pages in memory and in the file.
func (f *pageFile) writeAt(b pages, at int64) error {
	n, err := f.File.WriteAt(b, at)
	if f.refused(err) {
		_, err = f.File.WriteAt(b[n:], at+int64(n))
	}
	return err
}

// write writes b, whole pages in memory and in the file, behind what was written.
func (f *pageFile) write(b pages) error {
	n, err := f.File.Write(b)
	if f.refused(err) {
		_, err = f.File.Write(b[n:])
	}
	return err
}

// refused reports whether err says that the file system takes no such write past the cache: some
// take the flag all the same, and some want multiples of more than a page. From then on the file
// is written through the cache.
func (f *pageFile) refused(err error) bool {
	if !f.direct || !errors.Is(err, syscall.EINVAL) {
		return false
	}
	f.direct = false
	return setDirect(f.Fd(), false) == nil
}
