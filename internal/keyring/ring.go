package keyring

import (
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
	// BySubject gives the traces of one subject one key; else, and where a request names no
	// subject, each trace has its own.
	BySubject bool
	// Store is the directory of the store, in which the ring must not lie. "" is not asked.
	Store string
	// Rand is read for keys and nonces; nil is crypto/rand.Reader.
	Rand io.Reader
	// Batch is how many keys are made at once. Zero is 256.
	Batch int
}

func (o Options) withDefaults() Options {
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Batch == 0 {
		o.Batch = 256
	}
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
	slots    uint64                      // whole ones that the file has room for
	blanks   uint64                      // slots among them that were left out
	next     uint64                      // the next of a batch that nobody has yet
	made     uint64                      // the last of that batch
	subjects map[tag][]chain.KeyID       // not destroyed, the one that new traces get last
	fresh    map[tag]bool                // that one is for new traces
	keys     map[chain.KeyID]cipher.AEAD // used lately
	err      error                       // the first failed write: what the file has is not known
}

// mostKeys bounds how many unwrapped keys are kept.
const mostKeys = 4096

// Open opens the ring of a file. STATE_LOCK_ACQUIRE_FAILED: another process has it.
// STORE_UNAVAILABLE: its key-encryption key cannot be had, or is another one.
// STATE_CHECKSUM_MISMATCH: it is damaged.
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
	if r.lock, err = filelock.Lock(path + ".lock"); errors.Is(err, filelock.ErrHeld) {
		return r, tga.Errorf(tga.StateLockAcquireFailed, "key ring %s: %w", path, err)
	} else if err != nil {
		return r, tga.Errorf(tga.StoreUnavailable, "lock key ring %s: %w", path, err)
	}
	if r.file, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return r, tga.Errorf(tga.StoreUnavailable, "open key ring: %w", err)
	}
	return r, r.load()
}

// outside refuses a ring that is copied, moved and deleted with its store.
func outside(path, store string) error {
	if store == "" {
		return nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "key ring: %w", err)
	}
	if real, err := filepath.EvalSymlinks(store); err == nil {
		store = real // else there is no store yet
	}
	if access.Within(filepath.Join(dir, filepath.Base(path)), store) {
		return tga.Errorf(tga.ValidationError, "key ring %s lies in the store %s: a copy of the store would have its keys. Put the ring elsewhere", path, store)
	}
	return nil
}

// load reads the header and, by subjects, the slots.
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
	r.slots = uint64(info.Size()-headerLen) / slotLen
	if info.Size() != slotAt(chain.KeyID(r.slots+1)) {
		// A crash cut a batch short: nobody has a key of it.
		if err := r.file.Truncate(slotAt(chain.KeyID(r.slots + 1))); err != nil {
			return tga.Errorf(tga.StoreUnavailable, "write key ring: %w", err)
		}
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

func (r *Ring) remember(n chain.KeyID, s slot) {
	list := r.subjects[s.tag]
	if s.state == ofSubject {
		list = append(list, n)
		r.fresh[s.tag] = true
	} else if r.fresh[s.tag] {
		list = slices.Insert(list, len(list)-1, n) // the one for new traces stays the last
	} else {
		list = append(list, n)
	}
	r.subjects[s.tag] = list
}

// each calls f with every slot and its bytes; ok is false for one that is damaged, or blank.
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
	for _, f := range []**os.File{&r.file, &r.lock} {
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

// ID is the id of the ring. It does not change when the ring is rotated.
func (r *Ring) ID() tga.ID { return r.id }

// RequestDigest is what a ledger keeps of a request in place of its digest: HMAC-SHA-256 under
// the ring's secret. Who has the ledger alone cannot try arguments.
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

// usable reports why the ring takes no more writes. r.mu is held.
func (r *Ring) usable() error {
	if r.file == nil {
		return tga.Errorf(tga.StoreUnavailable, "key ring %s is closed", r.path)
	}
	return r.err
}

// Key returns the key of a new trace: that of its subject, or the next one that nobody has. It is
// on disk.
func (r *Ring) Key(namespace, subject string) (chain.KeyID, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return 0, err
	}
	if !r.opts.BySubject || subject == "" {
		return r.take()
	}
	t := r.tagOf(namespace, subject)
	if r.fresh[t] {
		list := r.subjects[t]
		return list[len(list)-1], nil
	}
	n, err := r.take()
	if err != nil {
		return 0, err
	}
	s, err := r.slot(n)
	if err != nil {
		return 0, err
	}
	s.state, s.tag = ofSubject, t
	if err := r.write(n, s); err != nil {
		return 0, err
	}
	r.remember(n, s)
	return n, nil
}

// take returns the next key that nobody has. r.mu is held.
func (r *Ring) take() (chain.KeyID, error) {
	if r.next > r.made {
		if err := r.more(); err != nil {
			return 0, err
		}
	}
	n := chain.KeyID(r.next)
	r.next++
	return n, nil
}

// more makes a batch of keys: one write, one sync. r.mu is held.
func (r *Ring) more() error {
	random := make([]byte, r.opts.Batch*(12+32))
	if _, err := io.ReadFull(r.opts.Rand, random); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "key ring: random bytes: %w", err)
	}
	b := make([]byte, 0, r.opts.Batch*slotLen)
	for i := range r.opts.Batch {
		n := r.slots + 1 + uint64(i)
		own := random[i*44:]
		s := slot{state: ofTrace, wrapped: r.wrap.wrap(own[12:44], own[:12], n)}
		b = s.append(b, n)
	}
	clear(random)
	if err := r.put(b, slotAt(chain.KeyID(r.slots+1))); err != nil {
		return err
	}
	r.next, r.slots = r.slots+1, r.slots+uint64(r.opts.Batch)
	r.made = r.slots
	return nil
}

// Last is the greatest number that a key of the ring has.
func (r *Ring) Last() chain.KeyID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return chain.KeyID(r.slots)
}

// Reserve leaves out the numbers up to n, for a ring that is an older copy: another copy has keys of these
// numbers, and the store has what they sealed. Their slots stay blank.
func (r *Ring) Reserve(n chain.KeyID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil || uint64(n) <= r.slots {
		return err
	}
	err := r.file.Truncate(slotAt(n + 1))
	if err == nil {
		err = r.file.Sync()
	}
	if err != nil {
		r.err = tga.Errorf(tga.StoreUnavailable, "write key ring %s: %w", r.path, err)
		return r.err
	}
	r.blanks += uint64(n) - r.slots
	r.slots, r.next, r.made = uint64(n), uint64(n)+1, uint64(n)
	return nil
}

// Missing counts the numbers that were left out: the store has used them, and only a newer copy of the ring
// has their keys.
func (r *Ring) Missing() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int(r.blanks)
}

// put writes to the file and syncs it. After an error nothing is written any more.
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

// slot reads a slot. r.mu is held.
func (r *Ring) slot(n chain.KeyID) (slot, error) {
	if n == 0 || uint64(n) > r.slots {
		return slot{}, tga.Errorf(tga.StoreUnavailable, "key ring %s has no key %d: it is older than the store, or another one", r.path, n)
	}
	var b [slotLen]byte
	if got, err := r.file.ReadAt(b[:], slotAt(n)); err != nil && !errors.Is(err, io.EOF) {
		return slot{}, tga.Errorf(tga.StoreUnavailable, "read key ring %s: %w", r.path, err)
	} else if s, ok := decodeSlot(b[:got], uint64(n)); ok {
		return s, nil
	} else if blank(b[:got]) {
		return slot{}, tga.Errorf(tga.StoreUnavailable, "key ring %s has no key %d: it is a copy from before that key. Only a newer copy has it", r.path, n)
	}
	return slot{}, tga.Errorf(tga.StoreUnavailable, "key ring %s: key %d is damaged. Restore the ring from a copy", r.path, n)
}

// aead returns what seals and opens under a key.
func (r *Ring) aead(n chain.KeyID) (cipher.AEAD, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g, ok := r.keys[n]; ok {
		return g, nil
	}
	if r.file == nil {
		return nil, r.usable()
	}
	s, err := r.slot(n)
	if err != nil {
		return nil, err
	}
	if s.state == destroyed {
		return nil, chain.ErrKeyDestroyed
	}
	key, err := r.wrap.unwrap(s.wrapped, uint64(n))
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "key ring %s: key %d is wrapped under another key-encryption key", r.path, n)
	}
	g, err := newGCM(key)
	if err != nil {
		return nil, err
	}
	clear(key)
	for old := range r.keys { // any of them: whichever is needed is unwrapped again
		if len(r.keys) < mostKeys {
			break
		}
		delete(r.keys, old)
	}
	r.keys[n] = g
	return g, nil
}

// Seal implements [chain.Keys].
func (r *Ring) Seal(dst []byte, key chain.KeyID, plain, aad []byte) ([]byte, error) {
	g, err := r.aead(key)
	if err != nil {
		return nil, err
	}
	at := len(dst)
	dst = append(dst, make([]byte, g.NonceSize())...)
	if _, err := io.ReadFull(r.opts.Rand, dst[at:]); err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "key ring: random bytes: %w", err)
	}
	return g.Seal(dst, dst[at:], plain, aad), nil
}

// Open implements [chain.Keys].
func (r *Ring) Open(dst []byte, key chain.KeyID, sealed, aad []byte) ([]byte, error) {
	g, err := r.aead(key)
	if err != nil {
		return nil, err
	}
	n := g.NonceSize()
	if len(sealed) < n {
		return nil, damaged("%d bytes are nothing sealed", len(sealed))
	}
	out, err := g.Open(dst, sealed[:n], sealed[n:], aad)
	if err != nil {
		return nil, damaged("it does not open under key %d", key)
	}
	return out, nil
}

// Shared reports whether a key is that of a subject: other traces may be sealed under it.
func (r *Ring) Shared(key chain.KeyID) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return false, err
	}
	s, err := r.slot(key)
	return s.state == ofSubject || s.state == retired, err
}

// Retire returns the keys of a subject that are not destroyed, and gives none of them to a new
// trace any more: the next one gets another key.
func (r *Ring) Retire(namespace, subject string) ([]chain.KeyID, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return nil, err
	}
	t := r.tagOf(namespace, subject)
	list := r.subjects[t]
	if r.fresh[t] {
		n := list[len(list)-1]
		s, err := r.slot(n)
		if err != nil {
			return nil, err
		}
		s.state = retired
		if err := r.write(n, s); err != nil {
			return nil, err
		}
		delete(r.fresh, t)
	}
	return slices.Clone(list), nil
}

// Destroy destroys a key for good. What was destroyed may be destroyed again.
func (r *Ring) Destroy(key chain.KeyID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return err
	}
	s, err := r.slot(key)
	if err != nil || s.state == destroyed {
		return err
	}
	if err := r.write(key, slot{state: destroyed}); err != nil {
		return err
	}
	delete(r.keys, key)
	if list := r.subjects[s.tag]; s.tag != (tag{}) {
		if list = slices.DeleteFunc(list, func(n chain.KeyID) bool { return n == key }); s.state == ofSubject {
			delete(r.fresh, s.tag)
		}
		if r.subjects[s.tag] = list; len(list) == 0 {
			delete(r.subjects, s.tag)
		}
	}
	return nil
}
