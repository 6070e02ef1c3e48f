package keyring_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/keyring"
	"github.com/tgad/tgad/schemas/tga"
)

// command is a key-encryption service: a program that turns the bytes around.
func command(t testing.TB, script string) keyring.KEK {
	t.Helper()
	return keyring.KEK{Command: []string{"/bin/sh", "-c", script, "sh"}, Timeout: 20 * time.Second}
}

const swap = `case $1 in wrap) printf wrapped; cat;; unwrap) head -c 7 >/dev/null; cat;; *) exit 3;; esac`

func TestKeyEncryptionKeyFromACommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ring")
	o := keyring.Options{KEK: command(t, swap)}
	if err := keyring.Create(path, ringID, o); err != nil {
		t.Fatal(err)
	}
	r := open(t, path, o)
	n := key(t, r, "")
	sealed := seal(t, r, n)
	r.Close()
	r = open(t, path, o)
	if b, err := r.Open(nil, n, sealed, []byte("place")); err != nil || string(b) != "the value" {
		t.Errorf("%q, %v", b, err)
	}
	if info, err := r.Info(); err != nil || !info.Command {
		t.Errorf("%+v, %v", info, err)
	}
	r.Close()
	for name, script := range map[string]string{
		"it fails":            `echo the service is down >&2; exit 1`,
		"it says too little":  `cat >/dev/null; printf x`,
		"it says too much":    `cat >/dev/null; head -c 100000 /dev/zero`,
		"it says nothing":     `cat >/dev/null`,
		"it says another key": `cat >/dev/null; printf 00000000000000000000000000000000`,
		"it is not a program": `/none/such`,
	} {
		o.KEK = command(t, script)
		_, err := keyring.Open(path, o)
		if tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("%s: %v", name, err)
		}
		if name == "it fails" && !strings.Contains(err.Error(), "the service is down") {
			t.Errorf("what it said is lost: %v", err)
		}
	}
	o.KEK = command(t, `exec sleep 60`)
	o.KEK.Timeout = 50 * time.Millisecond
	if _, err := keyring.Open(path, o); tga.CodeOf(err) != tga.StoreUnavailable || !strings.Contains(err.Error(), "no answer within") {
		t.Errorf("it hangs: %v", err)
	}
}

func TestKeyEncryptionKeyFromAFile(t *testing.T) {
	path, o := ringFile(t, false)
	for name, c := range map[string]struct {
		content []byte
		mode    os.FileMode
		code    tga.Code
	}{
		"hex":             {[]byte(kek), 0o600, ""},
		"raw":             {[]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}, 0o600, ""},
		"another":         {bytes.Repeat([]byte("k"), 32), 0o600, tga.StoreUnavailable},
		"a byte short":    {bytes.Repeat([]byte("k"), 31), 0o600, tga.StoreUnavailable},
		"a digit short":   {[]byte(kek[:63]), 0o600, tga.StoreUnavailable},
		"no digits":       {bytes.Repeat([]byte("k"), 64), 0o600, tga.StoreUnavailable},
		"others read it":  {[]byte(kek), 0o644, tga.StoreUnavailable},
		"a group may not": {[]byte(kek), 0o660, tga.StoreUnavailable},
	} {
		if err := os.Remove(o.KEK.File); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(o.KEK.File, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(o.KEK.File, c.mode); err != nil {
			t.Fatal(err)
		}
		r, err := keyring.Open(path, o)
		if tga.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			r.Close()
		} else if strings.Contains(err.Error(), "kkk") {
			t.Errorf("%s: the error has the key: %v", name, err)
		}
	}
	for name, k := range map[string]keyring.KEK{"none": {}, "both": {File: "f", Command: []string{"c"}}} {
		o.KEK = k
		if _, err := keyring.Open(path, o); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%s: %v", name, err)
		}
		if err := keyring.Create(path+"2", ringID, o); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%s: %v", name, err)
		}
	}
	o.KEK = command(t, swap)
	if _, err := keyring.Open(path, o); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("a command for a ring that has a file: %v", err)
	}
}
