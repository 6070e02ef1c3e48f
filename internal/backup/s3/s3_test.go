package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

const secret = "wJalrXUtnFEMI/K7MDENG"

// clean removes the settings for buckets from the environment.
func clean(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_CA_BUNDLE"} {
		t.Setenv(name, "")
	}
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
	t.Setenv("AWS_CONFIG_FILE", none)
}

// answering is a bucket at the given server.
func answering(t *testing.T, answer http.HandlerFunc) *Objects {
	t.Helper()
	clean(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	o, err := Open(Options{Address: "s3://bucket/prefix", Endpoint: server.URL, Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestServerThatHangsIsLeft: a server that does not answer, one that does not read the body, and one that
// stops in the middle of its answer.
func TestServerThatHangsIsLeft(t *testing.T) {
	over := make(chan struct{})
	o := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/half") {
			w.Header().Set("Content-Length", "100")
			w.Header().Set("ETag", `"x"`)
			w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
			if _, err := w.Write(make([]byte, 50)); err != nil {
				t.Log(err)
			}
			w.(http.Flusher).Flush()
		}
		<-over
	})
	defer close(over)
	o.idle = 50 * time.Millisecond
	hung := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "nothing moved") {
			t.Errorf("%s: %v", what, err)
		}
	}
	body := make([]byte, 1<<20)
	hung("put", o.Put(t.Context(), "x", bytes.NewReader(body), int64(len(body)), sha256.Sum256(body)))
	_, err := o.Has(t.Context(), "x")
	hung("has", err)
	_, err = o.Swap(t.Context(), "x", body[:10], "")
	hung("swap", err)
	for _, err := range o.List(t.Context(), "") {
		hung("list", err)
	}
	in, _, err := o.Get(t.Context(), "half")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(in)
	hung("get", err)
	if cerr := in.Close(); len(got) != 50 {
		t.Errorf("%d bytes, %v", len(got), cerr)
	}
	// If the caller ends the work, the error says so and does not blame the server.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.Delete(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestBrokenAnswersAreAskedForAgain: a request with a broken answer is repeated a few times. Then the error
// is returned, without a secret in it.
func TestBrokenAnswersAreAskedForAgain(t *testing.T) {
	var asked atomic.Int64
	o := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		if n := asked.Add(1); n%retries != 0 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	body := []byte("body")
	if err := o.Put(t.Context(), "x", bytes.NewReader(body), 4, sha256.Sum256(body)); err != nil || asked.Load() != retries {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
	denied := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		if _, err := io.WriteString(w, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>"); err != nil {
			t.Log(err)
		}
	})
	if err := denied.Put(t.Context(), "x", bytes.NewReader(body), 4, sha256.Sum256(body)); err == nil || strings.Contains(err.Error(), secret) {
		t.Error(err)
	}
}

// TestServiceWithoutConditions: a service that does not know conditional writes can still be used.
func TestServiceWithoutConditions(t *testing.T) {
	o := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-Match")+r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotImplemented)
			return
		}
		w.Header().Set("ETag", `"next"`)
	})
	if tag, err := o.Swap(t.Context(), "x", []byte("body"), "before"); err != nil || tag != "next" {
		t.Error(tag, err)
	}
}

// TestCredentialsAreNeededAndClosed: credentials come from the environment, or from a file that nobody else
// can read. No error contains a part of them.
func TestCredentialsAreNeededAndClosed(t *testing.T) {
	clean(t)
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte("[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = "+secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(o Options) error {
		o.Address = "s3://bucket"
		_, err := Open(o)
		return err
	}
	refused := func(what string, err error) {
		t.Helper()
		if tga.CodeOf(err) != tga.ValidationError || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("none", open(Options{}))
	if err := open(Options{CredentialsFile: file}); err != nil {
		t.Error(err)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	if err := open(Options{}); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	refused("others can read it", open(Options{CredentialsFile: file}))
	if err := errors.Join(os.Chmod(file, 0o600), os.WriteFile(file, []byte("[default]\nnothing = "+secret+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	refused("a file without", open(Options{CredentialsFile: file}))
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	refused("a password in the endpoint", open(Options{Endpoint: "https://u:" + secret + "@s3.example"}))
	refused("no endpoint", open(Options{Endpoint: "ftp://s3.example"}))
	refused("no certificates", open(Options{CAFile: file}))
	if err := open(Options{}); err != nil {
		t.Error(err)
	}
}
