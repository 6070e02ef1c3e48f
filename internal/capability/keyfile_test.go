//go:build unix

package capability

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

func TestKeyFileIsPrivate(t *testing.T) {
	r, _ := newRing(t)
	info, err := os.Stat(r.path)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("made with mode %v, %v", info.Mode(), err)
	}
	for mode := range os.FileMode(0o1000) {
		if mode&0o400 == 0 || mode&0o077 != 0 && mode&(mode-1)&0o077 != 0 {
			continue // unreadable, or with more than one permission for others
		}
		if err := os.Chmod(r.path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := Open(r.path, "a", "b", Options{})
		if open := mode&0o077 != 0; open != (err != nil) {
			t.Errorf("mode %#o: %v", mode, err)
		} else if open && (!errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), "mode 0")) {
			t.Errorf("mode %#o: %v", mode, err)
		}
		if err := r.Reload(); (err != nil) != (mode&0o077 != 0) {
			t.Errorf("mode %#o: reload: %v", mode, err)
		}
	}
}

func TestAnotherUsersKeyFileIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	r, _ := newRing(t)
	if err := os.Chown(r.path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if err := r.Reload(); !errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), "uid 12345") {
		t.Error(err)
	}
}

func TestKeyFileInTheStoreIsRefused(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	deep := filepath.Join(store, "a", "b")
	if err := os.MkdirAll(deep, 0o750); err != nil {
		t.Fatal(err)
	}
	link, fileLink := filepath.Join(dir, "link"), filepath.Join(dir, "file.pem")
	inside := filepath.Join(deep, "made.pem")
	for name, to := range map[string]string{link: deep, fileLink: inside} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(inside, "a", "b", Options{}); err != nil {
		t.Fatal(err) // no store was named
	}
	t.Chdir(store)
	for path, ok := range map[string]bool{
		filepath.Join(store, "key.pem"):        false,
		filepath.Join(deep, "key.pem"):         false,
		filepath.Join(link, "key.pem"):         false, // through a symlink of a directory
		fileLink:                               false, // through a symlink of the file
		"key.pem":                              false, // the store is the working directory
		filepath.Join("a", "..", "key.pem"):    false,
		filepath.Join(dir, "key.pem"):          true,
		filepath.Join(store, "..", "key2.pem"): true,
		filepath.Join(dir, "storeroom.pem"):    true,
	} {
		_, err := Open(path, "a", "b", Options{StoreDir: store})
		if ok && err != nil || !ok && (!errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), "inside the store")) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := os.Stat(filepath.Join(store, "key.pem")); err == nil {
		t.Error("a refused key file was made")
	}
	t.Chdir(deep) // the store is above the working directory
	if _, err := Open("key.pem", "a", "b", Options{StoreDir: store}); !errors.Is(err, tga.ValidationError) {
		t.Errorf("below the store: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "early.pem"), "a", "b", Options{StoreDir: filepath.Join(dir, "none")}); err != nil {
		t.Errorf("the store is not made yet: %v", err)
	}
}

func TestRotationOutlivesARestart(t *testing.T) {
	r, clock := newRing(t)
	first := r.keys.active.id
	before := mint(t, r, grant())
	second, err := r.Rotate()
	if err != nil || second == first {
		t.Fatal(second, err)
	}
	after := mint(t, r, grant())
	for _, ring := range []*Ring{r, reopen(t, r, clock)} {
		for _, token := range []string{before, after} {
			if err := ring.Check(ctx, token, grant()); err != nil {
				t.Error(err)
			}
		}
		if head, _ := said(t, mint(t, ring, grant())); !strings.Contains(head, second) {
			t.Errorf("signed by %s", head)
		}
	}
	raw, err := os.ReadFile(r.path)
	if err != nil || strings.Count(string(raw), privateBlock) != 2 { // BEGIN and END of the active key
		t.Errorf("the file keeps the private half of a key that was rotated out: %v", err)
	}
	if left, err := filepath.Glob(r.path + ".*"); err != nil || left != nil {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func reopen(t *testing.T, r *Ring, clock *at) *Ring {
	t.Helper()
	again, err := Open(r.path, r.issuer, r.audience, Options{Clock: clock.time})
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func TestRetiredKeys(t *testing.T) {
	r, clock := newRing(t)
	g := grant()
	stolen := r.keys // somebody else has the key that is about to be rotated out
	clock.now = t0.Add(999 * time.Millisecond)
	if _, err := r.Rotate(); err != nil {
		t.Fatal(err)
	}
	// until is rounded up: the last token that was signed before the rotation lives as long as it says.
	until := t0.Add(time.Second + DefaultLifetime + DefaultSkew)
	if got := r.keys.earlier[0].until; got != until.Unix() {
		t.Fatalf("until %s, want %s", second(got), until)
	}
	thief := &Ring{issuer: "tgad", audience: "store-1", opts: r.opts, keys: stolen}

	clock.now = until.Add(-DefaultLifetime)
	last := mint(t, thief, g)
	clock.now = until.Add(-1)
	if err := r.Check(ctx, last, g); err != nil {
		t.Errorf("a token that ends with its key: %v", err)
	}
	clock.now = until
	refused(t, r.Check(ctx, last, g), last, "key "+stolen.active.id+" ended at 2026-01-15T20:00:31Z")

	clock.now = until.Add(-DefaultLifetime + time.Second)
	late := mint(t, thief, g)
	refused(t, r.Check(ctx, late, g), late, "claim exp is 2026-01-15T20:00:32Z", stolen.active.id)
	keys, err := r.JWKS()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyDetached(last, keys); err != nil {
		t.Errorf("an auditor comes later: %v", err)
	}
	_, err = VerifyDetached(late, keys)
	refused(t, err, late, "claim exp")
}

// TestADeletedKeyIsRevoked: the procedure of the documents for a stolen key.
func TestADeletedKeyIsRevoked(t *testing.T) {
	r, _ := newRing(t)
	token := mint(t, r, grant())
	if _, err := r.Rotate(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}
	cut := raw[:bytes.Index(raw, []byte("-----BEGIN PUBLIC"))]
	if err := os.WriteFile(r.path, cut, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Check(ctx, token, grant()); err != nil {
		t.Fatal(err)
	}
	if err := r.Reload(); err != nil {
		t.Fatal(err)
	}
	refused(t, r.Check(ctx, token, grant()), token, "is no key of this ring")
}

func TestRotationBuildsOnTheFile(t *testing.T) {
	r, clock := newRing(t)
	other := reopen(t, r, clock)
	if _, err := other.Rotate(); err != nil {
		t.Fatal(err)
	}
	token := mint(t, other, grant())
	if _, err := r.Rotate(); err != nil {
		t.Fatal(err)
	}
	if err := r.Check(ctx, token, grant()); err != nil {
		t.Errorf("a rotation lost the key of another process: %v", err)
	}
	if n := len(r.keys.earlier); n != 2 {
		t.Errorf("%d earlier keys", n)
	}
}

func TestProcessesThatStartTogetherMakeOneKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	var rings [16]*Ring
	var wg sync.WaitGroup
	for i := range rings {
		wg.Go(func() {
			var err error
			if rings[i], err = Open(path, "a", "b", Options{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, r := range rings {
		if r == nil || r.keys.active.id != rings[0].keys.active.id {
			t.Fatal("two keys were made")
		}
	}
}

func TestRotateUnderCheck(t *testing.T) {
	r, _ := newRing(t)
	token := mint(t, r, grant())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if err := r.Check(ctx, token, grant()); err != nil {
					t.Error(err)
				}
				if _, err := r.Mint(ctx, grant()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		if _, err := r.Rotate(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

func TestAFailedRotationChangesNothing(t *testing.T) {
	r, clock := newRing(t)
	was, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}
	token := mint(t, r, grant())
	r.opts.Rand = strings.NewReader("short")
	if _, err := r.Rotate(); !errors.Is(err, tga.StoreUnavailable) {
		t.Fatal(err)
	}
	r.opts.Rand = rand.Reader
	// A file that a crash left before the rename does no harm, whatever its mode.
	if err := os.WriteFile(r.path+".new", []byte("half a key"), 0o644); err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile(r.path)
	if err != nil || !bytes.Equal(was, now) {
		t.Error("the file changed")
	}
	if _, err := r.Rotate(); err != nil {
		t.Fatal(err)
	}
	if err := reopen(t, r, clock).Check(ctx, token, grant()); err != nil {
		t.Error(err)
	}
	// A directory in place of the new file: it cannot be written.
	if err := os.MkdirAll(filepath.Join(r.path+".new", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	active := r.keys.active.id
	if _, err := r.Rotate(); !errors.Is(err, tga.StoreUnavailable) {
		t.Fatal(err)
	}
	if r.keys.active.id != active || r.Check(ctx, token, grant()) != nil {
		t.Error("the ring took a key that is in no file")
	}
}

func TestKeysAtTheLimit(t *testing.T) {
	r, _ := newRing(t)
	keys := r.keys
	for i := range MaxKeys - 2 {
		var seed [ed25519.SeedSize]byte
		seed[0], seed[1] = byte(i), byte(i>>8)
		k := keySetOf(ed25519.NewKeyFromSeed(seed[:])).active
		k.until = t0.Unix()
		keys.earlier = append(keys.earlier, k)
	}
	if err := writeKeys(r.path, keys); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Rotate(); err != nil { // the thousandth
		t.Fatal(err)
	}
	if err := r.Reload(); err != nil {
		t.Fatal(err)
	}
	if n := len(r.keys.public()); n != MaxKeys {
		t.Fatalf("%d keys", n)
	}
	if _, err := r.Rotate(); !errors.Is(err, tga.LimitExceeded) {
		t.Fatal(err)
	}
	more := r.keys
	extra, err := newKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	extra.active.until = 1
	more.earlier = append(more.earlier, extra.active)
	if err := writeKeys(r.path, more); err != nil {
		t.Fatal(err)
	}
	if err := r.Reload(); !errors.Is(err, tga.ValidationError) {
		t.Fatal(err)
	}
	if set, err := r.JWKS(); err != nil || len(set) > maxJWKS/4 {
		t.Errorf("a full key set has %d bytes, %v", len(set), err)
	}
	if info, err := os.Stat(r.path); err != nil || info.Size() > maxKeyFile/4 {
		t.Errorf("a full file has %d bytes, %v", info.Size(), err)
	}
}

// rotated is a ring with one earlier key, and the two blocks of its file.
func rotated(t *testing.T) (r *Ring, private, public string) {
	t.Helper()
	r, _ = newRing(t)
	if _, err := r.Rotate(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}
	split := strings.Index(string(raw), "-----BEGIN PUBLIC")
	return r, string(raw[:split]), string(raw[split:])
}

func TestDamagedKeyFilesAreRefused(t *testing.T) {
	r, private, public := rotated(t)
	good := private + public
	raw := []byte(good)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaDER, err := x509.MarshalPKCS8PrivateKey(rsaKey)
	if err != nil {
		t.Fatal(err)
	}
	rsaPEM := string(pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: rsaDER}))
	for name, content := range map[string]string{
		"empty":              "",
		"no PEM":             "key",
		"public first":       public + private,
		"public alone":       public,
		"two private":        private + private,
		"the same key twice": good + public,
		"text between":       private + "revoked:\n" + public,
		"text after":         good + "x",
		"no until":           private + strings.Replace(public, "Until: ", "Since: ", 1),
		"until of no time":   private + strings.Replace(public, "Until: 2", "Until: x", 1),
		"another header":     private + strings.Replace(public, "Until: ", "A: b\nUntil: ", 1),
		"another kind":       strings.Replace(private, "PRIVATE KEY", "RSA PRIVATE KEY", 2),
		"RSA":                rsaPEM,
		"damaged public":     private + strings.Replace(public, "\n\n", "\n\n!", 1),
		"cut short":          good[:len(good)-20],
	} {
		if err := os.WriteFile(r.path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.Reload(); !errors.Is(err, tga.ValidationError) || strings.Contains(err.Error(), "CAo") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := r.Rotate(); err == nil {
			t.Errorf("%s: rotated, and the rest is gone", name)
		}
	}
	for name, content := range map[string]string{"as it was": good, "blank lines around": "\n" + good + "\n\n"} {
		if err := os.WriteFile(r.path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.Reload(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	pad := func(n int) error {
		if err := os.WriteFile(r.path, append(raw, bytes.Repeat([]byte("\n"), n-len(raw))...), 0o600); err != nil {
			t.Fatal(err)
		}
		return r.Reload()
	}
	if err := pad(maxKeyFile); err != nil {
		t.Error(err)
	}
	if err := pad(maxKeyFile + 1); !errors.Is(err, tga.ValidationError) {
		t.Error(err)
	}
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, code := range map[string]tga.Code{
		pipe:                                  tga.ValidationError,
		dir:                                   tga.ValidationError,
		filepath.Join(dir, "none", "key.pem"): tga.StoreUnavailable,
	} {
		if _, err := Open(path, "a", "b", Options{}); !errors.Is(err, code) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestOpenSSLReadsTheKeyFile: the format is the public one, in both directions.
func TestOpenSSLReadsTheKeyFile(t *testing.T) {
	openssl := serial.Program(t, "openssl")
	r, _ := newRing(t)
	out, err := exec.Command(openssl, "pkey", "-in", r.path, "-pubout", "-outform", "DER").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(out, r.keys.active.key) {
		t.Errorf("openssl reads %x, want %x", out, r.keys.active.key)
	}
	made := filepath.Join(t.TempDir(), "made.pem")
	if err := exec.Command(openssl, "genpkey", "-algorithm", "ed25519", "-out", made).Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(made, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(made, "a", "b", Options{}); err != nil {
		t.Error(err)
	}
}

func FuzzKeyFile(f *testing.F) {
	r, _ := newRing(f)
	if _, err := r.Rotate(); err != nil {
		f.Fatal(err)
	}
	raw, err := os.ReadFile(r.path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := decodeKeys("x", data)
		if err != nil {
			return
		}
		again, err := encodeKeys(keys)
		if err != nil || !bytes.Equal(bytes.TrimSpace(again), bytes.TrimSpace(data)) {
			t.Fatalf("%q was read as %q, %v", data, again, err)
		}
	})
}
