package fuzz

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/keyring"
	"github.com/tgad/tgad/schemas/tga"
)

// FuzzKeyring: opening any bytes as a key ring gives an error with a code, or a ring whose next key is new.
func FuzzKeyring(f *testing.F) { fuzzKeyring(f) }

func fuzzKeyring(f fuzzer) {
	dir, err := os.MkdirTemp("", "keyring")
	if err != nil {
		f.Fatal(err)
	}
	if c, ok := f.(interface{ Cleanup(func()) }); ok {
		c.Cleanup(func() { os.RemoveAll(dir) })
	}
	o := keyring.Options{KEK: keyring.KEK{File: filepath.Join(dir, "kek")}, BySubject: true, Batch: 2}
	path := filepath.Join(dir, "ring")
	must := func(err error) {
		if err != nil {
			f.Fatal(err)
		}
	}
	must(os.WriteFile(o.KEK.File, []byte(strings.Repeat("0a", 32)), 0o600))
	must(keyring.Create(path, tga.ID{6: 0x70, 8: 0x80}, o))
	seed := func() {
		b, err := os.ReadFile(path)
		must(err)
		f.Add(b)
	}
	seed()
	r, err := keyring.Open(path, o)
	must(err)
	n, err := r.Key("default", "alice")
	must(err)
	seed()
	must(r.Destroy(n))
	_, err = r.Retire("default", "alice")
	must(err)
	seed()
	must(r.Close())
	f.Fuzz(bounded(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "ring")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := keyring.Open(path, o)
		if err != nil {
			if tga.CodeOf(err) == "" {
				t.Fatalf("an error without a code: %v", err)
			}
			return
		}
		defer r.Close()
		before, err := r.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, err := r.Key("default", "")
		if err != nil || int(n) <= before.Keys+before.Destroyed+before.Damaged {
			t.Fatalf("key %d of a ring with %+v, %v", n, before, err)
		}
	}))
}
