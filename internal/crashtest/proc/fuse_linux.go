package proc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// blockDisk is a file, served by FUSE, that keeps a log of its writes and flushes. Under
// a loop device it is a disk with a volatile cache whose content is known.
//
// The FUSE protocol is implemented here, for a single file that is itself the root of its
// file system: eight messages, and ENOSYS for the others. The structures are
// those of linux/fuse.h, protocol 7.31, little-endian.
type blockDisk struct {
	path string   // where the file is mounted
	dev  *os.File // /dev/fuse
	disk *os.File // what the file holds now
	size int64

	mu      sync.Mutex
	log     []blockWrite
	flushes []int // for each flush, how many writes it covers

	ended chan error
}

// blockWrite is one write, at most blockBytes long and within one block.
type blockWrite struct {
	off  int64
	data []byte
}

// blockBytes is what a disk writes whole or not at all.
const blockBytes = 4096

// FUSE opcodes that are answered.
const (
	fuseForget      = 2
	fuseGetattr     = 3
	fuseOpen        = 14
	fuseRead        = 15
	fuseWrite       = 16
	fuseRelease     = 18
	fuseFsync       = 20
	fuseInit        = 26
	fuseInterrupt   = 36
	fuseDestroy     = 38
	fuseBatchForget = 42
)

const (
	fuseInHeader = 40
	fuseMaxWrite = 128 << 10
)

// serveBlocks mounts image as the file path, which it makes.
func serveBlocks(image, path string) (d *blockDisk, err error) {
	d = &blockDisk{path: path, ended: make(chan error, 1)}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return nil, err
	}
	if d.disk, err = os.OpenFile(image, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	info, err := d.disk.Stat()
	if err != nil {
		return nil, errors.Join(err, d.disk.Close())
	}
	d.size = info.Size()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open /dev/fuse: %w", err), d.disk.Close())
	}
	d.dev = os.NewFile(uintptr(fd), "/dev/fuse")
	options := fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0", fd, unix.S_IFREG)
	if err := unix.Mount("tgad-blocks", path, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a FUSE file: %w", err), d.dev.Close(), d.disk.Close())
	}
	go func() { d.ended <- d.serve(fd) }()
	// With the first close the kernel asks whether the server implements flush on close. Let
	// it ask here: if a forked child caused the question, the child and this process could
	// wait for each other.
	first, err := openRaw(path)
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, unix.Close(first)
}

// openRaw opens a file without registering it with the Go runtime's poller. The poller asks
// the file whether it can be polled and keeps its processor meanwhile. If this process
// serves the file, the poller would wait for the server, and the server for a processor.
func openRaw(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}

// close unmounts the file, of which no loop device may be left, and ends the server.
func (d *blockDisk) close() error {
	err := unix.Unmount(d.path, 0)
	if err != nil {
		err = errors.Join(fmt.Errorf("unmount the FUSE file: %w", err), unix.Unmount(d.path, unix.MNT_FORCE|unix.MNT_DETACH))
	}
	return errors.Join(err, <-d.ended, d.dev.Close(), d.disk.Close())
}

// serve answers one request after the other until the file is unmounted. fd is read as
// it is: the poller of the Go runtime is not in between.
func (d *blockDisk) serve(fd int) error {
	buf := make([]byte, fuseMaxWrite+4096)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOENT):
			continue
		case errors.Is(err, unix.ECONNABORTED):
			continue // unmounted while the last request was on its way here; the next read says so
		case errors.Is(err, unix.ENODEV):
			return nil
		case err != nil:
			return fmt.Errorf("read /dev/fuse: %w", err)
		case n < fuseInHeader:
			return fmt.Errorf("read /dev/fuse: %d bytes", n)
		}
		opcode, unique := binary.LittleEndian.Uint32(buf[4:]), binary.LittleEndian.Uint64(buf[8:])
		switch opcode {
		case fuseForget, fuseBatchForget, fuseInterrupt:
			continue // no answer is expected
		}
		body, errno := d.answer(opcode, buf[fuseInHeader:n])
		out := make([]byte, 16, 16+len(body))
		binary.LittleEndian.PutUint32(out, uint32(16+len(body)))
		binary.LittleEndian.PutUint32(out[4:], uint32(-int32(errno)))
		binary.LittleEndian.PutUint64(out[8:], unique)
		if _, err := unix.Write(fd, append(out, body...)); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("answer opcode %d: %w", opcode, err)
		}
	}
}

// answer does what a request asks.
func (d *blockDisk) answer(opcode uint32, in []byte) ([]byte, unix.Errno) {
	le := binary.LittleEndian
	switch opcode {
	case fuseInit:
		out := make([]byte, 64)
		le.PutUint32(out[0:], 7)                 // major
		le.PutUint32(out[4:], 31)                // minor
		le.PutUint32(out[8:], le.Uint32(in[8:])) // max_readahead
		le.PutUint32(out[12:], 1<<5)             // flags: FUSE_BIG_WRITES
		le.PutUint16(out[16:], 16)               // max_background
		le.PutUint16(out[18:], 12)               // congestion_threshold
		le.PutUint32(out[20:], fuseMaxWrite)     // max_write
		le.PutUint32(out[24:], 1)                // time_gran
		return out, 0
	case fuseGetattr:
		out := make([]byte, 16+88)
		le.PutUint64(out[0:], 3600) // valid for an hour: nobody else changes it
		attr := out[16:]
		le.PutUint64(attr[0:], 1)                   // ino
		le.PutUint64(attr[8:], uint64(d.size))      // size
		le.PutUint64(attr[16:], uint64(d.size/512)) // blocks
		le.PutUint32(attr[60:], unix.S_IFREG|0o600) // mode
		le.PutUint32(attr[64:], 1)                  // nlink
		le.PutUint32(attr[80:], blockBytes)         // blksize
		return out, 0
	case fuseOpen:
		return make([]byte, 16), 0
	case fuseRelease, fuseDestroy:
		return nil, 0
	case fuseRead:
		off, size := int64(le.Uint64(in[8:])), le.Uint32(in[16:])
		out := make([]byte, size)
		n, err := d.disk.ReadAt(out, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, unix.EIO
		}
		return out[:n], 0
	case fuseWrite:
		off, size := int64(le.Uint64(in[8:])), le.Uint32(in[16:])
		data := in[40 : 40+size]
		if _, err := d.disk.WriteAt(data, off); err != nil {
			return nil, unix.EIO
		}
		d.wrote(off, data)
		out := make([]byte, 8)
		le.PutUint32(out, size)
		return out, 0
	case fuseFsync:
		d.mu.Lock()
		d.flushes = append(d.flushes, len(d.log))
		d.mu.Unlock()
		return nil, 0
	}
	return nil, unix.ENOSYS
}

// wrote puts a write into the log, block by block.
func (d *blockDisk) wrote(off int64, data []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	data = append([]byte(nil), data...)
	for len(data) > 0 {
		n := min(int64(len(data)), blockBytes-off%blockBytes)
		d.log = append(d.log, blockWrite{off, data[:n]})
		off, data = off+n, data[n:]
	}
}

// moment is a place in the log: the first flushed writes are durable, those up to
// written may be.
type moment struct{ flushed, written int }

// place is where the log has come to: the moment, and the number of flushes.
type place struct {
	moment
	flushes int
}

func (d *blockDisk) now() place {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := place{moment{0, len(d.log)}, len(d.flushes)}
	if p.flushes > 0 {
		p.flushed = d.flushes[p.flushes-1]
	}
	return p
}

// between returns the moment at a place and those after it, up to the next place, at
// which the most can be lost: right before each flush.
func (d *blockDisk) between(at, next place) []moment {
	all := []moment{at.moment}
	flushed := at.flushed
	for _, covered := range d.flushes[at.flushes:next.flushes] {
		if m := (moment{flushed, covered}); m != all[len(all)-1] && flushed < covered {
			all = append(all, m)
		}
		flushed = covered
	}
	return all
}

// image writes to a copy of the formatted disk what a power cut at m may leave: what was
// flushed, and of the rest what keep says, in order.
func (d *blockDisk) image(to string, m moment, keep func(i int) bool) (err error) {
	f, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for i, w := range d.log[:m.written] {
		if i >= m.flushed && !keep(i-m.flushed) {
			continue
		}
		if _, err := f.WriteAt(w.data, w.off); err != nil {
			return err
		}
	}
	return nil
}
