package keyring_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/keyring"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestKeyIsGivenOnce: no key is given twice, within a batch, over several batches, or by the next process.
func TestKeyIsGivenOnce(t *testing.T) {
	path, o := ringFile(t, false)
	given := map[chain.KeyID]bool{}
	for range 3 {
		r := open(t, path, o)
		for range 6 {
			n := key(t, r, "somebody")
			if given[n] || n == 0 {
				t.Fatalf("key %d twice", n)
			}
			given[n] = true
		}
		r.Close()
	}
}

// TestKeyIsDurableBeforeItIsGiven: another process that opens the file as it is now has the key.
func TestKeyIsDurableBeforeItIsGiven(t *testing.T) {
	path, o := ringFile(t, true)
	r := open(t, path, o)
	for _, subject := range []string{"", "alice", "", "", "", "bob", ""} {
		n := key(t, r, subject)
		sealed := seal(t, r, n)
		copied := copyOf(t, path)
		if b, err := open(t, copied, o).Open(nil, n, sealed, []byte("place")); err != nil || string(b) != "the value" {
			t.Errorf("key %d of %q: %q, %v", n, subject, b, err)
		}
	}
}

// TestOlderRingGivesNoNumberTwice: an older copy that knows the newest used number gives only later numbers,
// also after it is reopened and rotated. The keys that it lacks do not count as destroyed.
func TestOlderRingGivesNoNumberTwice(t *testing.T) {
	path, o := ringFile(t, false)
	r := open(t, path, o)
	key(t, r, "")
	older := copyOf(t, path)
	for range 5 {
		key(t, r, "")
	}
	last, sealed := r.Last(), seal(t, r, 6)
	if last != 8 {
		t.Fatalf("last is %d", last)
	}
	c := open(t, older, o)
	for _, n := range []chain.KeyID{3, last, last} {
		if err := c.Reserve(n); err != nil {
			t.Fatal(err)
		}
	}
	if n := key(t, c, ""); n != last+1 || c.Last() != last+4 {
		t.Errorf("key %d of %d, want %d", n, c.Last(), last+1)
	}
	missing := func(r *keyring.Ring) {
		t.Helper()
		for _, n := range []chain.KeyID{6, 1 << 40} { // never written here, and past the end of the file
			_, err := r.Open(nil, n, sealed, []byte("place"))
			if !errors.Is(err, tga.StoreUnavailable) || !errors.Is(err, chain.ErrKeyMissing) {
				t.Errorf("key %d: %v, want STORE_UNAVAILABLE for it alone", n, err)
			}
		}
		if i, err := r.Info(); err != nil || i.Keys != 8 || i.Missing != 4 || i.Damaged != 0 {
			t.Errorf("%+v, %v", i, err)
		}
	}
	missing(c)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Open(nil, 6, sealed, []byte("place")); !errors.Is(err, tga.StoreUnavailable) || errors.Is(err, chain.ErrKeyMissing) {
		t.Errorf("of a ring that is closed: %v, which is said of no key alone", err)
	}
	to := o
	to.KEK.File = filepath.Join(t.TempDir(), "new")
	if err := os.WriteFile(to.KEK.File, []byte(strings.Replace(kek, "00", "ff", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := keyring.Rotate(older, o, to); err != nil {
		t.Fatal(err)
	}
	c = open(t, older, to)
	missing(c)
	if n := key(t, c, ""); n <= last+1 {
		t.Errorf("key %d after it was opened again", n)
	}
}

func copyOf(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "ring")
	if err := os.WriteFile(copied, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return copied
}

func TestSubjectHasOneKeyUntilItIsRetired(t *testing.T) {
	path, o := ringFile(t, true)
	r := open(t, path, o)
	alice := key(t, r, "alice")
	if bob, own := key(t, r, "bob"), key(t, r, ""); bob == alice || own == alice || own == bob {
		t.Errorf("keys %d %d %d", alice, bob, own)
	}
	if other, err := r.Key("another tenant", "alice"); err != nil || other == alice {
		t.Errorf("another tenant's alice has key %d, %v", other, err)
	}
	r.Close()
	r = open(t, path, o)
	if again := key(t, r, "alice"); again != alice {
		t.Errorf("key %d, and %d after a reopen", alice, again)
	}
	for n, want := range map[chain.KeyID]bool{alice: true, key(t, r, ""): false} {
		if shared, err := r.Shared(n); err != nil || shared != want {
			t.Errorf("key %d shared: %v, %v", n, shared, err)
		}
	}
	retire := func(want ...chain.KeyID) {
		t.Helper()
		if got, err := r.Retire("default", "alice"); err != nil || !slices.Equal(got, want) {
			t.Fatalf("retired %v, %v, want %v", got, err, want)
		}
	}
	sealed := seal(t, r, alice)
	retire(alice)
	retire(alice)
	r.Close()
	r = open(t, path, o)
	next := key(t, r, "alice")
	if next == alice {
		t.Error("a retired key is given to a new trace")
	}
	if b, err := r.Open(nil, alice, sealed, []byte("place")); err != nil || string(b) != "the value" {
		t.Errorf("a retired key opens %q, %v", b, err)
	}
	r.Close()
	r = open(t, path, o)
	if again := key(t, r, "alice"); again != next {
		t.Errorf("key %d, and %d after a reopen", next, again)
	}
	retire(alice, next)
	if err := r.Destroy(alice); err != nil {
		t.Fatal(err)
	}
	retire(next)
	if err := r.Destroy(next); err != nil {
		t.Fatal(err)
	}
	retire()
	if last := key(t, r, "alice"); last == alice || last == next {
		t.Errorf("a destroyed key %d is given again", last)
	}
}
