package capability

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestEarlierKeysAreChecked: each earlier key of a file is an Ed25519 key that says when it ended, and the error says which is not.
func TestEarlierKeysAreChecked(t *testing.T) {
	r, _ := newRing(t)
	if _, err := r.Rotate(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}
	good := string(raw)
	private, public := good[:strings.Index(good, "-----BEGIN PUBLIC")], good[strings.Index(good, "-----BEGIN PUBLIC"):]
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
