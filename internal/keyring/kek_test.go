package keyring_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
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

// TestKeyEncryptionKeyBehindASocket: a program at a socket serves the same rings as the same program as a command.
func TestKeyEncryptionKeyBehindASocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "tgad-kek-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path, at := filepath.Join(dir, "ring"), filepath.Join(dir, "s")
	var answer atomic.Pointer[http.HandlerFunc]
	first := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in, err := io.ReadAll(r.Body)
		switch {
		case err != nil || r.Method != http.MethodPost || r.Host != "kek":
			t.Errorf("%s %s at %s: %v", r.Method, r.URL, r.Host, err)
		case r.URL.Path == "/wrap":
			_, _ = w.Write(append([]byte("wrapped"), in...))
		case r.URL.Path == "/unwrap":
			_, _ = w.Write(in[7:])
		default:
			t.Errorf("asked for %s", r.URL)
		}
	})
	answer.Store(&first)
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	served := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) }))
	served.Listener = l
	served.Start()
	defer served.Close()
	o := keyring.Options{KEK: keyring.KEK{Socket: at, Timeout: 20 * time.Second}}
	if err := keyring.Create(path, ringID, o); err != nil {
		t.Fatal(err)
	}
	r := open(t, path, o)
	n := key(t, r, "")
	sealed := seal(t, r, n)
	r.Close()
	for _, same := range []keyring.Options{o, {KEK: command(t, swap)}} {
		r = open(t, path, same)
		if b, err := r.Open(nil, n, sealed, []byte("place")); err != nil || string(b) != "the value" {
			t.Errorf("%q, %v", b, err)
		}
		r.Close()
	}
	if _, err := keyring.Open(path, keyring.Options{KEK: keyring.KEK{File: filepath.Join(dir, "none")}}); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("a file for it: %v", err)
	}
	hang := make(chan struct{})
	for name, a := range map[string]http.HandlerFunc{
		"it refuses": func(w http.ResponseWriter, r *http.Request) { // whatever it says with that
			w.WriteHeader(http.StatusForbidden)
			in, _ := io.ReadAll(r.Body)
			_, _ = w.Write(in[7:])
		},
		"it says nothing":     func(http.ResponseWriter, *http.Request) {},
		"it says too little":  func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, strings.Repeat("k", 31)) },
		"it says too much":    func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, strings.Repeat("k", 100_000)) },
		"it says another key": func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, strings.Repeat("k", 32)) },
		"it leads elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		},
		"it hangs up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"it hangs":    func(http.ResponseWriter, *http.Request) { <-hang },
	} {
		answer.Store(&a)
		o.KEK.Timeout = 20 * time.Second
		if name == "it hangs" {
			o.KEK.Timeout = 50 * time.Millisecond
		}
		_, err := keyring.Open(path, o)
		if tga.CodeOf(err) != tga.StoreUnavailable || strings.Contains(err.Error(), "kkk") || name == "it hangs" && !strings.Contains(err.Error(), "no answer within") {
			t.Errorf("%s: %v", name, err)
		}
	}
	close(hang)
	served.Close()
	if _, err := keyring.Open(path, o); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("nobody listens: %v", err)
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
	for name, k := range map[string]keyring.KEK{"none": {}, "both": {File: "f", Command: []string{"c"}}, "file and socket": {File: "f", Socket: "s"}, "command and socket": {Command: []string{"c"}, Socket: "s"}} {
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
