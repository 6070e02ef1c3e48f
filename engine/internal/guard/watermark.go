package guard

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// WatermarkName is the watermark's file in the store's directory. Pebble ignores it.
const WatermarkName = "WATERMARK"

// The file holds two slots, each in a page of its own, so that a write of one slot cannot
// damage the other:
//
//	magic[8] generation[8] group[8] checksum of its record[4] store id[16] timeline[16] crc[4]
//
// All integers are little-endian; the checksum is CRC-32C of the 60 bytes before it.
// Generation g is in slot g%2, and the slot with the higher generation counts.
const (
	slotSize      = 64
	slotStride    = 4096
	watermarkSize = 2 * slotStride
	watermarkID   = "tgadwm\x00" + string(rune(tga.WatermarkVersion))
)

// Mark is the content of the watermark.
type Mark struct {
	Generation uint64
	Group      uint64 // number of the newest group of the log known to be durable
	Sum        uint32 // checksum of its record
	StoreID    tga.ID
	Timeline   tga.ID // of the log
}

func (m *Mark) encode(b *[slotSize]byte) {
	copy(b[0:8], watermarkID)
	binary.LittleEndian.PutUint64(b[8:], m.Generation)
	binary.LittleEndian.PutUint64(b[16:], m.Group)
	binary.LittleEndian.PutUint32(b[24:], m.Sum)
	copy(b[28:44], m.StoreID[:])
	copy(b[44:60], m.Timeline[:])
	binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
}

func decodeMark(b []byte) (m Mark, ok bool) {
	if len(b) < slotSize || string(b[:8]) != watermarkID ||
		binary.LittleEndian.Uint32(b[60:]) != crc32.Checksum(b[:60], castagnoli) {
		return Mark{}, false
	}
	m.Generation = binary.LittleEndian.Uint64(b[8:])
	m.Group = binary.LittleEndian.Uint64(b[16:])
	m.Sum = binary.LittleEndian.Uint32(b[24:])
	copy(m.StoreID[:], b[28:44])
	copy(m.Timeline[:], b[44:60])
	return m, true
}

// ReadWatermark returns the newer of the two slots. It returns NOT_FOUND if there is no file,
// and STATE_CHECKSUM_MISMATCH if neither slot is whole. A power cut can leave one bad slot; the
// other slot then holds the mark before.
func ReadWatermark(fsys vfs.FS, dir string) (Mark, error) {
	path := fsys.PathJoin(dir, WatermarkName)
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Mark{}, tga.Errorf(tga.NotFound, "watermark %s: %w", path, err)
	}
	if err != nil {
		return Mark{}, unavailable("watermark "+path, err)
	}
	var b [watermarkSize]byte
	n, err := f.ReadAt(b[:], 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return Mark{}, unavailable("watermark "+path, err)
	}
	var newest Mark
	found := false
	for slot := range uint64(2) {
		off := min(int(slot)*slotStride, n)
		m, ok := decodeMark(b[off:n])
		if ok && m.Generation%2 == slot && (!found || m.Generation > newest.Generation) {
			newest, found = m, true
		}
	}
	if !found {
		return Mark{}, mismatch("watermark %s: neither slot is whole", path)
	}
	return newest, nil
}

// Watermark keeps a Mark on disk. Its methods may be called concurrently.
//
// After the first failed write or sync every call returns that error: the content of the file is
// then unknown, and a mark that lags behind the log could hide a loss.
type Watermark struct {
	mu    sync.Mutex // the mark, the slots and err
	f     vfs.File
	mark  Mark
	slot  [slotSize]byte
	err   error
	dirty bool // written since the last sync began

	syncMu sync.Mutex // one sync at a time; never held together with a wait for mu's holder
	stop   chan struct{}
	done   chan struct{}
}

// OpenWatermark opens a watermark. The errors are [ReadWatermark]'s.
func OpenWatermark(fsys vfs.FS, dir string) (*Watermark, error) {
	path := fsys.PathJoin(dir, WatermarkName)
	mark, err := ReadWatermark(fsys, dir)
	if err != nil {
		return nil, err
	}
	f, err := fsys.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, unavailable("watermark "+path, err)
	}
	return &Watermark{f: f, mark: mark}, nil
}

// CreateWatermark makes a watermark and syncs it and its name. It replaces and discards an
// existing watermark.
func CreateWatermark(fsys vfs.FS, dir string, mark Mark) (*Watermark, error) {
	path := fsys.PathJoin(dir, WatermarkName)
	// Write a new file under another name and rename it: a power cut leaves the old or the new one.
	temp := path + ".new"
	w := &Watermark{mark: mark}
	fail := func(err error) (*Watermark, error) {
		if w.f != nil {
			err = errors.Join(err, w.f.Close())
		}
		return nil, unavailable("create watermark "+path, err)
	}
	if err := fsys.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	var err error
	if w.f, err = fsys.OpenReadWrite(temp, vfs.WriteCategoryUnspecified); err != nil {
		return fail(err)
	}
	if _, err := w.f.WriteAt(make([]byte, watermarkSize), 0); err != nil {
		return fail(err)
	}
	for range 2 { // both slots
		if err := w.write(); err != nil {
			return fail(err)
		}
	}
	if err := w.f.Sync(); err != nil {
		return fail(err)
	}
	if err := fsys.Rename(temp, path); err != nil {
		return fail(err)
	}
	if err := syncDir(fsys, dir); err != nil {
		return fail(err)
	}
	w.dirty = false
	return w, nil
}

// Mark returns the current mark.
func (w *Watermark) Mark() Mark {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mark
}

// Advance records that the log is durable up to a group. Call it after the sync of that group
// has returned and before its waiters are answered.
//
// It does not sync. The page cache survives a crash of the process, and [Watermark.SyncNow]
// bounds how much of the mark a power cut can lose.
func (w *Watermark) Advance(group uint64, sum uint32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || group <= w.mark.Group {
		return w.err
	}
	w.mark.Group, w.mark.Sum = group, sum
	return w.write()
}

// write puts the mark into the slot that does not hold the newest whole mark.
func (w *Watermark) write() error {
	w.mark.Generation++
	w.mark.encode(&w.slot)
	off := int64(w.mark.Generation%2) * slotStride
	if _, err := w.f.WriteAt(w.slot[:], off); err != nil {
		w.err = unavailable("write watermark", err)
	}
	w.dirty = true
	return w.err
}

// SyncNow makes the mark durable. It does not delay Advance.
func (w *Watermark) SyncNow() error {
	w.syncMu.Lock()
	defer w.syncMu.Unlock()
	w.mu.Lock()
	dirty, err := w.dirty, w.err
	w.dirty = false
	w.mu.Unlock()
	if err != nil || !dirty {
		return err
	}
	if err := w.f.SyncData(); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.err == nil {
			w.err = unavailable("sync watermark", err)
		}
		return w.err
	}
	return nil
}

// SyncEvery starts a goroutine that calls SyncNow every interval until Close. If SyncNow fails,
// the next call of any method returns the error.
func (w *Watermark) SyncEvery(interval time.Duration) {
	w.stop, w.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(w.done)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-ticker.C:
				if w.SyncNow() != nil {
					return // w.err has the error
				}
			}
		}
	}()
}

// Close syncs and closes the file. Call it once, after the last Advance.
func (w *Watermark) Close() error {
	if w.stop != nil {
		close(w.stop)
		<-w.done
	}
	err := w.SyncNow()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = errClosed // a store that was cut off may still call Advance
	}
	if cerr := w.f.Close(); err == nil && cerr != nil {
		err = unavailable("close watermark", cerr)
	}
	return err
}

var errClosed = unavailable("advance watermark", errors.New("it is closed"))

func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func mismatch(format string, args ...any) error {
	err := tga.Errorf(tga.StateChecksumMismatch, format, args...)
	err.Where = "stored"
	return err
}

func unavailable(what string, err error) error {
	return tga.Errorf(tga.StoreUnavailable, "%s: %w", what, err)
}
