package keyring_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/internal/keyring"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

var ringID = tga.ID{1, 6: 0x70, 8: 0x80}

const kek = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"

// ringFile makes a ring and returns its path and the options that open it.
func ringFile(t testing.TB, bySubject bool) (string, keyring.Options) {
	t.Helper()
	dir := t.TempDir()
	o := keyring.Options{KEK: keyring.KEK{File: filepath.Join(dir, "kek")}, BySubject: bySubject, Batch: 4}
	if err := os.WriteFile(o.KEK.File, []byte(kek), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "ring")
	if err := keyring.Create(path, ringID, o); err != nil {
		t.Fatal(err)
	}
	return path, o
}

func open(t testing.TB, path string, o keyring.Options) *keyring.Ring {
	t.Helper()
	r, err := keyring.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func key(t testing.TB, r *keyring.Ring, subject string) chain.KeyID {
	t.Helper()
	n, err := r.Key("default", subject)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func seal(t testing.TB, r *keyring.Ring, n chain.KeyID) []byte {
	t.Helper()
	b, err := r.Seal([]byte("before"), n, []byte("the value"), []byte("place"))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != len("before")+len("the value")+chain.SealOverhead || bytes.Contains(b, []byte("the value")) {
		t.Fatalf("sealed as %q", b)
	}
	return b[len("before"):]
}

func TestWhatIsSealedIsOpenedAgain(t *testing.T) {
	path, o := ringFile(t, false)
	r := open(t, path, o)
	n := key(t, r, "")
	sealed := seal(t, r, n)
	if again := seal(t, r, n); bytes.Equal(again, sealed) {
		t.Error("two nonces are one")
	}
	for range 2 {
		b, err := r.Open([]byte("x"), n, sealed, []byte("place"))
		if err != nil || string(b) != "xthe value" {
			t.Fatalf("%q, %v", b, err)
		}
		r.Close()
		r = open(t, path, o)
	}
	flipped := bytes.Clone(sealed)
	flipped[len(flipped)-1] ^= 1
	for name, c := range map[string]struct {
		key    chain.KeyID
		sealed []byte
		aad    string
		code   tga.Code
	}{
		"another place":     {n, sealed, "elsewhere", tga.StateChecksumMismatch},
		"a flipped bit":     {n, flipped, "place", tga.StateChecksumMismatch},
		"cut short":         {n, sealed[:11], "place", tga.StateChecksumMismatch},
		"another key":       {n + 1, sealed, "place", tga.StateChecksumMismatch},
		"no key":            {0, sealed, "place", tga.StoreUnavailable},
		"a key of the next": {n + 1000, sealed, "place", tga.StoreUnavailable},
	} {
		if _, err := r.Open(nil, c.key, c.sealed, []byte(c.aad)); tga.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}

func TestDestroyedKeyStaysDestroyed(t *testing.T) {
	for _, subject := range []string{"", "alice"} {
		path, o := ringFile(t, true)
		r := open(t, path, o)
		n := key(t, r, subject)
		sealed := seal(t, r, n)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := r.Destroy(n); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := r.Open(nil, n, sealed, []byte("place")); !errors.Is(err, chain.ErrKeyDestroyed) {
					t.Fatalf("opened: %v", err)
				}
				if _, err := r.Seal(nil, n, nil, nil); !errors.Is(err, chain.ErrKeyDestroyed) {
					t.Fatalf("sealed: %v", err)
				}
				r.Close()
				r = open(t, path, o)
			}
		}
		after, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := 4096 + 128*(int(n)-1)
		if wrapped := before[at+24 : at+84]; bytes.Contains(after, wrapped[12:44]) {
			t.Error("the wrapped key is still in the file")
		}
		if again := key(t, r, subject); again == n {
			t.Error("a destroyed key is given again")
		}
		if err := r.Destroy(n + 1000); tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("a key that is not there: %v", err)
		}
	}
}

// TestDamagedSlotIsNotDestroyed: a key whose slot is damaged never counts as destroyed. The test
// changes each byte of a slot, also of a destroyed one.
func TestDamagedSlotIsNotDestroyed(t *testing.T) {
	path, o := ringFile(t, false)
	r := open(t, path, o)
	n, gone := key(t, r, ""), key(t, r, "")
	sealed := seal(t, r, n)
	if err := r.Destroy(gone); err != nil {
		t.Fatal(err)
	}
	r.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 128 {
		for _, n := range []chain.KeyID{n, gone} {
			b := bytes.Clone(whole)
			b[4096+128*(int(n)-1)+i] ^= 4
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			r := open(t, path, o)
			if _, err := r.Open(nil, n, sealed, []byte("place")); tga.CodeOf(err) != tga.StoreUnavailable || !errors.Is(err, chain.ErrKeyMissing) {
				t.Fatalf("byte %d of key %d changed: %v", i, n, err)
			}
			if info, err := r.Info(); err != nil || info.Damaged != 1 {
				t.Fatalf("%+v, %v", info, err)
			}
			r.Close()
		}
	}
}

// TestKeyOfAnotherKEKIsMissing: a slot is whole but wrapped under another key-encryption key than the header of its ring, as after a
// rotation that was partly restored from a copy. Its key counts as missing, and the other keys are not affected.
func TestKeyOfAnotherKEKIsMissing(t *testing.T) {
	path, o := ringFile(t, false)
	r := open(t, path, o)
	n, other := key(t, r, ""), key(t, r, "")
	sealed, fine := seal(t, r, n), seal(t, r, other)
	r.Close()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	slot := b[4096+128*(int(n)-1):][:128]
	slot[24+12] ^= 1 // what is wrapped
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	sum.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
	sum.Write(slot[:124])
	binary.BigEndian.PutUint32(slot[124:], sum.Sum32())
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r = open(t, path, o)
	defer r.Close()
	_, err = r.Open(nil, n, sealed, []byte("place"))
	if tga.CodeOf(err) != tga.StoreUnavailable || !errors.Is(err, chain.ErrKeyMissing) || !strings.Contains(err.Error(), "another key-encryption key") {
		t.Errorf("the key: %v", err)
	}
	if _, err := r.Open(nil, other, fine, []byte("place")); err != nil {
		t.Errorf("the other key: %v", err)
	}
}

// TestCrashInABatchLosesNoKey: the file is cut at every place after the first batch. The keys that
// were given still open, and none of them is given again.
func TestCrashInABatchLosesNoKey(t *testing.T) {
	path, o := ringFile(t, false)
	r := open(t, path, o)
	var given []chain.KeyID
	for range 4 {
		given = append(given, key(t, r, ""))
	}
	sealed := seal(t, r, given[3])
	r.Close()
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r = open(t, path, o)
	key(t, r, "")
	r.Close()
	second, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := len(first); n <= len(second); n += 31 {
		for _, cut := range [][]byte{second[:n], append(bytes.Clone(second[:n]), make([]byte, len(second)-n)...)} {
			if err := os.WriteFile(path, cut, 0o600); err != nil {
				t.Fatal(err)
			}
			r := open(t, path, o)
			if b, err := r.Open(nil, given[3], sealed, []byte("place")); err != nil || string(b) != "the value" {
				t.Fatalf("cut to %d: %q, %v", n, b, err)
			}
			if next := key(t, r, ""); slices.Contains(given, next) {
				t.Fatalf("cut to %d: key %d is given again", n, next)
			}
			seal(t, r, key(t, r, ""))
			r.Close()
		}
	}
}

func TestRotatedRingOpensUnderTheNewKeyAlone(t *testing.T) {
	path, o := ringFile(t, true)
	r := open(t, path, o)
	alice, own, gone := key(t, r, "alice"), key(t, r, ""), key(t, r, "")
	sealed := map[chain.KeyID][]byte{alice: seal(t, r, alice), own: seal(t, r, own)}
	digest := r.RequestDigest(tga.Digest{7})
	if err := r.Destroy(gone); err != nil {
		t.Fatal(err)
	}
	to := o
	to.KEK.File = filepath.Join(t.TempDir(), "kek2")
	if err := os.WriteFile(to.KEK.File, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := keyring.Rotate(path, o, to); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Errorf("rotated while it is open: %v", err)
	}
	r.Close()
	if err := keyring.Rotate(path, o, to); err != nil {
		t.Fatal(err)
	}
	if _, err := keyring.Open(path, o); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("opened with the old key: %v", err)
	}
	r = open(t, path, to)
	for n, b := range sealed {
		if b, err := r.Open(nil, n, b, []byte("place")); err != nil || string(b) != "the value" {
			t.Errorf("key %d opens %q, %v", n, b, err)
		}
	}
	if _, err := r.Seal(nil, gone, nil, nil); !errors.Is(err, chain.ErrKeyDestroyed) {
		t.Errorf("a destroyed key: %v", err)
	}
	if again := key(t, r, "alice"); again != alice || r.ID() != ringID || r.RequestDigest(tga.Digest{7}) != digest || digest == (tga.Digest{7}) {
		t.Errorf("key %d, ring %s", again, r.ID())
	}
	r.Close()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[4096+24] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := keyring.Rotate(path, to, o); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("a damaged ring is rotated: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, b) {
		t.Errorf("the ring is another one now, %v", err)
	}
}

func TestRingLiesOutsideOfTheStore(t *testing.T) {
	path, o := ringFile(t, false)
	o.Store = filepath.Dir(path)
	if _, err := keyring.Open(path, o); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("opened: %v", err)
	}
	if err := keyring.Create(filepath.Join(o.Store, "deeper"), ringID, o); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("made: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(o.Store, link); err != nil {
		t.Fatal(err)
	}
	if _, err := keyring.Open(filepath.Join(link, "ring"), o); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("opened by a link: %v", err)
	}
	o.Store = filepath.Join(o.Store, "store")
	if err := open(t, path, o).Close(); err != nil {
		t.Error(err)
	}
}

func TestRingIsOfOneProcessAndOneUser(t *testing.T) {
	path, o := ringFile(t, false)
	r := open(t, path, o)
	if _, err := keyring.Open(path, o); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Errorf("opened twice: %v", err)
	}
	r.Close()
	if _, err := r.Key("default", ""); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("a closed ring gives a key: %v", err)
	}
	if err := keyring.Create(path, ringID, o); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("overwritten: %v", err)
	}
	if _, err := keyring.Open(path+"2", o); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("none is there: %v", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := keyring.Open(path, o); tga.CodeOf(err) != tga.PermissionDenied {
		t.Errorf("others read it: %v", err)
	}
}

// TestRotationIsRepeated: a process may end after it has rotated a ring and before it says so.
func TestRotationIsRepeated(t *testing.T) {
	path, o := ringFile(t, false)
	var kek [2]keyring.Options
	for i := range kek {
		kek[i] = keyring.Options{KEK: keyring.KEK{File: path + ".kek" + string(rune('0'+i))}}
		if err := os.WriteFile(kek[i].KEK.File, bytes.Repeat([]byte{byte(i)}, 32), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := keyring.Rotate(path, o, kek[0]); err != nil {
			t.Error(err)
		}
	}
	if err := keyring.Rotate(path, o, kek[1]); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("under neither key: %v", err)
	}
	r := open(t, path, kek[0])
	if err := keyring.Rotate(path, o, kek[0]); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Errorf("in use: %v", err)
	}
	r.Close()
}

// TestRingBehindALink: a ring is locked, and rotated, where the link leads.
func TestRingBehindALink(t *testing.T) {
	path, o := ringFile(t, true)
	link := filepath.Join(t.TempDir(), "link")
	next := keyring.Options{KEK: keyring.KEK{File: path + ".kek"}}
	if err := errors.Join(os.Symlink(path, link), os.WriteFile(next.KEK.File, []byte(strings.Repeat("ab", 32)), 0o600)); err != nil {
		t.Fatal(err)
	}
	shared := o
	shared.Shared = true
	r := open(t, link, o)
	for what, err := range map[string]error{"rotated": keyring.Rotate(path, o, next), "shared": opened(path, shared), "opened": opened(path, o)} {
		if tga.CodeOf(err) != tga.StateLockAcquireFailed {
			t.Errorf("%s beside a process that has it by a link: %v", what, err)
		}
	}
	r.Close()
	a, b := open(t, link, shared), open(t, path, shared)
	was := key(t, a, "alice")
	if _, err := b.Retire("default", "alice"); err != nil {
		t.Fatal(err)
	}
	if n := key(t, a, "alice"); n == was {
		t.Errorf("key %d was retired by its other name, and is given to a new trace", n)
	}
	a.Close()
	b.Close()
	if err := keyring.Rotate(link, o, next); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); err != nil || to != path {
		t.Errorf("the link leads to %q: %v", to, err)
	}
	if err := opened(path, next); err != nil {
		t.Errorf("what the link leads to is not rotated: %v", err)
	}
}

// opened opens and closes a ring.
func opened(path string, o keyring.Options) error {
	r, err := keyring.Open(path, o)
	if err == nil {
		err = r.Close()
	}
	return err
}

func TestFormatsHaveTheirNumbers(t *testing.T) {
	dir := t.TempDir()
	o := keyring.Options{KEK: keyring.KEK{File: filepath.Join(dir, "kek")}, BySubject: true, Batch: 3, Rand: counting{new(byte)}}
	if err := os.WriteFile(o.KEK.File, []byte(kek), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "ring")
	if err := keyring.Create(path, ringID, o); err != nil {
		t.Fatal(err)
	}
	r := open(t, path, o)
	key(t, r, "alice")
	if err := r.Destroy(key(t, r, "")); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	digest := r.RequestDigest(tga.Digest{7})
	golden.HoldFormat(t, "KeyringVersion", tga.KeyringVersion, b, digest[:])
}

// counting are bytes that count.
type counting struct{ n *byte }

func (c counting) Read(b []byte) (int, error) {
	for i := range b {
		*c.n++
		b[i] = *c.n
	}
	return len(b), nil
}
