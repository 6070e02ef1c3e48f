package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tgad/tgad/internal/cli"
)

// TestVerbAloneTakesItsConfiguration: where no process has the store, a verb that writes opens it with what the file of
// --config says: its paths start at the file, and the bucket is that of the file, not one of the environment.
func TestVerbAloneTakesItsConfiguration(t *testing.T) {
	t.Setenv("TGAD_SOCKET", "")
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	dir, err := os.MkdirTemp("", "tgad-alone-") // a path that is not too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	l, err := net.Listen("unix", at("kms"))
	if err != nil {
		t.Fatal(err)
	}
	// It wraps a key by turning it round, which is enough to be asked.
	kms := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := io.ReadAll(r.Body)
		for i, j := 0, len(key)-1; i < j; i, j = i+1, j-1 {
			key[i], key[j] = key[j], key[i]
		}
		if _, writeErr := w.Write(key); errors.Join(err, writeErr) != nil {
			t.Error(err, writeErr)
		}
	})}
	ended := make(chan error, 1)
	go func() { ended <- kms.Serve(l) }()
	t.Cleanup(func() {
		if err := kms.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
	var named, other, kept atomic.Int64
	counts := func(n *atomic.Int64) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1); strings.Contains(r.Host+r.URL.Path, "kept") {
				kept.Add(1)
			}
			w.WriteHeader(http.StatusForbidden)
		}))
		t.Cleanup(s.Close)
		return s
	}
	t.Setenv("AWS_ENDPOINT_URL", counts(&other).URL)
	conf := "[keyring]\npath = \"ring\"\nkek_socket = \"kms\"\n[backup]\nto = \"s3://kept/there\"\nregion = \"here\"\nendpoint = \"" + counts(&named).URL + "\"\n"
	if err := os.WriteFile(at("tgad.toml"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"init", "--data", at("data")}, {"keyring", "init", at("ring"), "--kek-socket", at("kms")}, {"seal", "--data", at("data"), "--config", at("tgad.toml")},
	} {
		if code, out, errs := says(args...); code != cli.ExitOK {
			t.Fatalf("%q: exit code %d, %s%s", args, code, out, errs)
		}
	}
	code, out, errs := says("backup", "--to", "s3://bucket/prefix", "--data", at("data"), "--config", at("tgad.toml"))
	// It makes the backup that it was asked for, and not the one that a daemon keeps.
	if code != cli.ExitError || named.Load() == 0 || other.Load() > 0 || kept.Load() > 0 {
		t.Errorf("exit code %d, %d requests to the service of the file, %d to another one, %d for the backup that a daemon keeps: %s%s",
			code, named.Load(), other.Load(), kept.Load(), out, errs)
	}
}
