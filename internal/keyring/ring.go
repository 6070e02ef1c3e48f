package keyring

import (
	"cmp"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/filelock"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Options of a ring.
type Options struct {
	KEK KEK
	// BySubject gives all traces of one subject the same key. Without it, and if a request names
	// no subject, each trace has a key of its own.
	BySubject bool
	// Store is the directory of the store, in which the ring must not lie. "" skips this check.
	Store string
	// Rand is read for keys and nonces; nil is crypto/rand.Reader.
	Rand io.Reader
	// Shared lets several processes of one machine have the ring open: the replicas of a store in a database.
	Shared bool
	// Batch is how many keys are made at once. Zero is 256.
	Batch int
}

func (o Options) withDefaults() Options {
	o.Rand = cmp.Or(o.Rand, rand.Reader)
	o.Batch = cmp.Or(o.Batch, 256)
	return o
}

// Ring is an open key ring. Its methods may be called concurrently.
type Ring struct {
	path   string
	opts   Options
	id     tga.ID
	secret []byte
	wrap   wrapping
	lock   *os.File

	mu       sync.Mutex
	file     *os.File
	slots    uint64                      // number of whole slots in the file
	blanks   uint64                      // number of skipped slots among them
	next     uint64                      // the next unused key of the batch
	made     uint64                      // the last of that batch
	subjects map[tag][]chain.KeyID       // keys that are not destroyed; the key for new traces is the last one
	fresh    map[tag]bool                // whether the last key is for new traces
	keys     map[chain.KeyID]cipher.AEAD // recently used keys, unwrapped
	err      error                       // the first failed write; the content of the file is then unknown
	sharing  *sharing                    // nil: no other process has the ring
}

// mostKeys bounds how many unwrapped keys are kept.
const mostKeys = 4096

// Open opens the ring in a file. STATE_LOCK_ACQUIRE_FAILED: another process has the ring open, and one of the
// two does not share it. STORE_UNAVAILABLE: the key-encryption key is not available, or is a different one.
// STATE_CHECKSUM_MISMATCH: the ring is damaged.
func Open(path string, o Options) (r *Ring, err error) {
	if err := o.KEK.check(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if err := outside(path, o.Store); err != nil {
		return nil, err
	}
	r = &Ring{path: path, opts: o, subjects: map[tag][]chain.KeyID{}, fresh: map[tag]bool{}, keys: map[chain.KeyID]cipher.AEAD{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
			r = nil
		}
	}()
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return r, tga.Errorf(tga.NotFound, "key ring %s is not there. Where the store is new: tgad keyring init", path)
	}
	if path, err = access.Target(path); err != nil { // whoever opens the ring by another name needs the same lock
		return r, tga.Errorf(tga.StoreUnavailable, "open key ring: %w", err)
	}
	r.path = path
	lock := filelock.Lock
	if o.Shared {
		lock = filelock.Share
	}
	if r.lock, err = lock(path + ".lock"); errors.Is(err, filelock.ErrHeld) {
		return r, tga.Errorf(tga.StateLockAcquireFailed, "key ring %s: %w", path, err)
	} else if err != nil {
		return r, tga.Errorf(tga.StoreUnavailable, "lock key ring %s: %w", path, err)
	}
	if r.file, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return r, tga.Errorf(tga.StoreUnavailable, "open key ring: %w", err)
	}
	if !o.Shared {
		return r, r.load()
	}
	return r, r.share()
}

// outside refuses a ring inside the directory of its store: it would be copied, moved and deleted with it.
func outside(path, store string) error {
	if store == "" {
		return nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "key ring: %w", err)
	}
	if real, err := filepath.EvalSymlinks(store); err == nil {
		store = real // on an error there is no store yet
	}
	if access.Within(filepath.Join(dir, filepath.Base(path)), store) {
		return tga.Errorf(tga.ValidationError, "key ring %s lies in the store %s: a copy of the store would have its keys. Put the ring elsewhere", path, store)
	}
	return nil
}

// load reads the header, and the slots of subjects.
func (r *Ring) load() error {
	info, err := r.file.Stat()
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "key ring: %w", err)
	}
	if found := access.Of(info); found.Refuse != "" || info.Mode().Perm()&0o077 != 0 {
		return tga.Errorf(tga.PermissionDenied, "key ring %s has mode %v: want a file of this user that nobody else can read: chmod 600", r.path, info.Mode())
	}
	b := make([]byte, headerLen)
	if n, err := r.file.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return tga.Errorf(tga.StoreUnavailable, "read key ring: %w", err)
	} else if n < headerLen {
		b = b[:n]
	}
	h, err := decodeHeader(r.path, b)
	if err != nil {
		return err
	}
	if h.from != r.opts.KEK.from() {
		return tga.Errorf(tga.ValidationError, "key ring %s: its key-encryption key is from a %s", r.path, map[byte]string{fromFile: "file", fromProgram: "program"}[h.from])
	}
	kek, err := r.opts.KEK.old(h.kek)
	if err != nil {
		return err
	}
	if r.wrap, err = newWrapping(kek, h.id); err != nil {
		return tga.Errorf(tga.GenericStateError, "key ring: %w", err)
	}
	if r.secret, err = r.wrap.unwrap(h.secret, 0); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "key ring %s: this is not the key-encryption key that it is wrapped under", r.path)
	}
	r.id = h.id
	if err := r.measure(); err != nil {
		return err
	}
	r.next, r.made = r.slots+1, r.slots
	return r.each(func(n chain.KeyID, s slot, raw []byte, ok bool) error {
		switch {
		case ok && (s.state == ofSubject || s.state == retired):
			r.remember(n, s)
		case !ok && blank(raw):
			r.blanks++
		}
		return nil
	})
}

// measure finds out how many slots the file has. No other process may write to the file meanwhile.
func (r *Ring) measure() error {
	info, err := r.file.Stat()
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "key ring: %w", err)
	}
	r.slots = uint64(info.Size()-headerLen) / slotLen
	if info.Size() != slotAt(chain.KeyID(r.slots+1)) {
		// A crash cut a batch short. Its keys were given to nobody.
		if err := r.file.Truncate(slotAt(chain.KeyID(r.slots + 1))); err != nil {
			return tga.Errorf(tga.StoreUnavailable, "write key ring: %w", err)
		}
	}
	return nil
}

func (r *Ring) remember(n chain.KeyID, s slot) {
	if r.sharing != nil {
		r.sharing.of[n] = s.tag
	}
	list := r.subjects[s.tag]
	if s.state == ofSubject {
		list = append(list, n)
		r.fresh[s.tag] = true
	} else if r.fresh[s.tag] {
		list = slices.Insert(list, len(list)-1, n) // the key for new traces stays the last one
	} else {
		list = append(list, n)
	}
	r.subjects[s.tag] = list
}

// each calls f with every slot and its bytes; ok is false for a damaged or blank slot.
func (r *Ring) each(f func(n chain.KeyID, s slot, raw []byte, ok bool) error) error {
	in := io.NewSectionReader(r.file, headerLen, int64(r.slots)*slotLen)
	b := make([]byte, 512*slotLen)
	for n := chain.KeyID(1); ; {
		got, err := io.ReadFull(in, b)
		for at := 0; at < got; at += slotLen {
			raw := b[at:min(at+slotLen, got)]
			s, ok := decodeSlot(raw, uint64(n))
			if err := f(n, s, raw, ok); err != nil {
				return err
			}
			n++
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return tga.Errorf(tga.StoreUnavailable, "read key ring: %w", err)
		}
	}
}

// Close closes the ring.
func (r *Ring) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	files := []**os.File{&r.file, &r.lock}
	if r.sharing != nil {
		files = append(files, &r.sharing.changes)
	}
	for _, f := range files {
		if *f != nil {
			err = errors.Join(err, (*f).Close())
			*f = nil
		}
	}
	clear(r.keys)
	clear(r.secret)
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "close key ring: %w", err)
	}
	return nil
}

// ID returns the id of the ring. It does not change when the ring is rotated.
func (r *Ring) ID() tga.ID { return r.id }

// RequestDigest returns the value that a ledger stores instead of the digest of a request:
// HMAC-SHA-256 under the ring's secret. So a reader of the ledger alone cannot guess arguments.
func (r *Ring) RequestDigest(plain tga.Digest) tga.Digest {
	return r.mac("tgad request v1", plain[:])
}

func (r *Ring) mac(label string, parts ...[]byte) (sum tga.Digest) {
	m := hmac.New(sha256.New, r.secret)
	for _, p := range append([][]byte{[]byte(label)}, parts...) {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(p)))
		m.Write(n[:])
		m.Write(p)
	}
	m.Sum(sum[:0])
	return sum
}

func (r *Ring) tagOf(namespace, subject string) tag {
	sum := r.mac("tgad subject key v1", []byte(namespace), []byte(subject))
	return tag(sum[:16])
}

// usable returns why the ring cannot be used, nil if it can. r.mu is held.
func (r *Ring) usable() error {
	if r.file == nil {
		return tga.Errorf(tga.StoreUnavailable, "key ring %s is closed", r.path)
	}
	return r.err
}

// put writes to the file and syncs it. After an error the ring writes nothing more.
func (r *Ring) put(b []byte, at int64) error {
	_, err := r.file.WriteAt(b, at)
	if err == nil {
		err = r.file.Sync()
	}
	if err != nil {
		r.err = tga.Errorf(tga.StoreUnavailable, "write key ring %s: %w", r.path, err)
	}
	return r.err
}

func (r *Ring) write(n chain.KeyID, s slot) error {
	return r.put(s.append(nil, uint64(n)), slotAt(n))
}
