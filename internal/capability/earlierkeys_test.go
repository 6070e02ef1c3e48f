package capability

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// TestEarlierKeysAreChecked: each earlier key of a file is an Ed25519 key that says when it ended, and the error says which is not.
func TestEarlierKeysAreChecked(t *testing.T) {
	_, private, public := rotated(t)
	good := private + public
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaPublic, err := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	earlier := func(der []byte, until string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: publicBlock, Headers: map[string]string{untilHeader: until}, Bytes: der}))
	}
	block, _ := pem.Decode([]byte(public))
	until := block.Headers[untilHeader]
	for name, c := range map[string]struct{ file, says string }{
		"an earlier key of RSA":       {private + earlier(rsaPublic, until), "earlier key 1 is a *rsa.PublicKey"},
		"an earlier key that is none": {private + earlier([]byte("x"), until), "earlier key 1: "},
		"the second earlier key":      {good + earlier([]byte("x"), until), "earlier key 2: "},
		"one that ended at 1970":      {private + earlier(block.Bytes, "1970-01-01T00:00:00.000Z"), "earlier key 1: header Until is \"1970"},
		"the second without an end":   {good + earlier(block.Bytes, "never"), "earlier key 2: header Until is \"never\""},
	} {
		if _, err := decodeKeys("f", []byte(c.file)); !errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	if keys, err := decodeKeys("f", []byte(private+earlier(block.Bytes, "1970-01-01T00:00:01.000Z"))); err != nil || len(keys.earlier) != 1 {
		t.Errorf("a key that ended long ago: %v", err)
	}
}

// TestEarlierKeyLastsAsLongAsItsTokens: if the rotation is at a whole second, an earlier key lasts as long as its
// tokens and not a second longer.
func TestEarlierKeyLastsAsLongAsItsTokens(t *testing.T) {
	r, clock := newRing(t)
	for _, late := range []time.Duration{0, 1, time.Second - 1} {
		clock.now = t0.Add(late)
		if _, err := r.Rotate(); err != nil {
			t.Fatal(err)
		}
		want := t0.Add(DefaultLifetime + DefaultSkew)
		if late > 0 {
			want = want.Add(time.Second)
		}
		newest := slices.MaxFunc(r.keys.earlier, func(a, b publicKey) int { return cmp.Compare(a.until, b.until) })
		if newest.until != want.Unix() {
			t.Errorf("rotated %v after a second: until %s, want %s", late, second(newest.until), want)
		}
	}
}

// TestKeyFileBehindALink: a rotation leaves the link, and the file that it leads to has the new key. A file that is
// not there is made where the link leads.
func TestKeyFileBehindALink(t *testing.T) {
	r, clock := newRing(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(r.path, link); err != nil {
		t.Fatal(err)
	}
	o := Options{Clock: clock.time}
	byLink, err := Open(link, r.issuer, r.audience, o)
	if err != nil {
		t.Fatal(err)
	}
	next, err := byLink.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	if id := reopen(t, r, clock).keys.active.id; id != next {
		t.Errorf("the file has key %s, want %s", id, next)
	}
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	if byLink, err = Open(link, r.issuer, r.audience, o); err != nil {
		t.Fatal(err)
	}
	if id := reopen(t, r, clock).keys.active.id; id != byLink.keys.active.id {
		t.Errorf("the new file has key %s, want %s", id, byLink.keys.active.id)
	}
}
