package monitor

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/evidence/sends"
	"github.com/tgad/tgad/schemas/tga"
)

// The file of keys has the state of each idempotency key, in a batch for each page that was checked:
//
//	magic [8]
//	batch: appends checked with it [8]   bytes [4]   bytes of package sends   CRC-32C of all before it [4]
//
// A batch is durable before the state says that its page was checked. A batch whose page the state
// does not have is dropped, and made again when the page is checked again.
const (
	keysMagic = "tgadmk\x00" + string(rune(tga.MonitorKeysVersion))
	batchHead = 8 + 4
	batchTail = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// keysName is the file of keys beside a state.
func keysName(path string) string { return path + ".keys" }

// readKeys returns the book at the moment when checked appends were checked, and the length of the
// file up to there. ok is false if the file does not reach that far: every append must be checked again.
func readKeys(path string, a sends.Attested, checked int64) (book *sends.Book, end int64, ok bool, err error) {
	book = sends.New(a)
	raw, err := access.ReadFile(keysName(path))
	if errors.Is(err, fs.ErrNotExist) {
		return book, 0, checked == 0, nil
	}
	if err != nil {
		return nil, 0, false, tga.Errorf(tga.StoreUnavailable, "monitor: %w", err)
	}
	at, reached := len(keysMagic), int64(0)
	if len(raw) < at || string(raw[:at]) != keysMagic {
		return book, 0, checked == 0, nil
	}
	for reached < checked {
		rest := raw[at:]
		if len(rest) < batchHead {
			break
		}
		size := batchHead + int(binary.BigEndian.Uint32(rest[8:]))
		if len(rest) < size+batchTail || crc32.Checksum(rest[:size], castagnoli) != binary.BigEndian.Uint32(rest[size:]) {
			break
		}
		now := int64(binary.BigEndian.Uint64(rest))
		if now <= reached || now > checked || book.Restore(rest[batchHead:size]) != nil {
			break
		}
		reached, at = now, at+size+batchTail
	}
	if reached < checked {
		return sends.New(a), 0, false, nil
	}
	return book, int64(at), true, nil
}

// addKeys appends the changes of a page, durably, and returns the new length of the file.
func addKeys(path string, end, checked int64, book *sends.Book) (int64, error) {
	var b []byte
	if end == 0 {
		b = append(b, keysMagic...)
	}
	at := len(b)
	b = binary.BigEndian.AppendUint64(b, uint64(checked))
	b = binary.BigEndian.AppendUint32(b, 0)
	b, err := book.Changed(b)
	if err != nil {
		return 0, err
	}
	binary.BigEndian.PutUint32(b[at+8:], uint32(len(b)-at-batchHead))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
	f, err := os.OpenFile(keysName(path), os.O_RDWR|os.O_CREATE, access.FileMode)
	if err == nil {
		err = f.Truncate(end)
		if err == nil {
			_, err = f.WriteAt(b, end)
		}
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		return 0, tga.Errorf(tga.StoreUnavailable, "monitor: %w", err)
	}
	return end + int64(len(b)), nil
}
