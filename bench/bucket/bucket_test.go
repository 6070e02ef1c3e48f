package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/tgad/tgad/internal/backup/bucket"
	"github.com/tgad/tgad/internal/backup/s3"
	"github.com/tgad/tgad/schemas/tga"
)

const secret = "wJalrXUtnFEMI/K7MDENG"

// service is a server with one bucket, and what happens to the requests on their way to it.
type service struct {
	*httptest.Server
	backend gofakes3.Backend
	fault   atomic.Pointer[func(w http.ResponseWriter, r *http.Request, next http.Handler)]
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{backend: s3mem.New()}
	if err := s.backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	next := gofakes3.New(s.backend).Server()
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := s.fault.Load(); f != nil {
			(*f)(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": secret, "AWS_ENDPOINT_URL_S3": s.URL, "AWS_REGION": "us-east-1",
	} {
		t.Setenv(name, value)
	}
	return s
}

func (s *service) faulty(f func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	if f == nil {
		s.fault.Store(nil)
		return
	}
	s.fault.Store(&f)
}

// names are the objects of the bucket.
func (s *service) names(t *testing.T) (all []string) {
	t.Helper()
	list, err := s.backend.ListBucket("bucket", &gofakes3.Prefix{}, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Contents {
		all = append(all, o.Key)
	}
	return all
}

// TestServiceKeepsToTheInterface: the client that tgad links keeps the promises of [bucket.Objects].
func TestServiceKeepsToTheInterface(t *testing.T) {
	newService(t)
	o, err := s3.Open(s3.Options{Address: "s3://bucket/a/b"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if has, err := o.Has(ctx, "data/x"); has || err != nil {
		t.Error(has, err)
	}
	if _, _, err := o.Get(ctx, "data/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := o.Delete(ctx, "data/x"); err != nil {
		t.Error(err)
	}
	body := []byte(strings.Repeat("body", 1<<18))
	if err := o.Put(ctx, "data/x", bytes.NewReader(body), int64(len(body)), sha256.Sum256(body)); err != nil {
		t.Fatal(err)
	}
	if has, err := o.Has(ctx, "data/x"); !has || err != nil {
		t.Error(has, err)
	}
	in, _, err := o.Get(ctx, "data/x")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(in)
	if err = errors.Join(err, in.Close()); err != nil || !bytes.Equal(got, body) {
		t.Error(len(got), err)
	}
	first, err := o.Swap(ctx, "BACKUP", []byte("one"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Swap(ctx, "BACKUP", []byte("two"), ""); !errors.Is(err, bucket.ErrChanged) {
		t.Errorf("there is one already: %v", err)
	}
	second, err := o.Swap(ctx, "BACKUP", []byte("two"), first)
	if err != nil || second == first {
		t.Fatal(second, err)
	}
	if _, err := o.Swap(ctx, "BACKUP", []byte("three"), first); !errors.Is(err, bucket.ErrChanged) {
		t.Errorf("it is another one: %v", err)
	}
	for object, err := range o.List(ctx, "data/") {
		if err != nil || object.Name != "data/x" || time.Since(object.Changed) > time.Hour {
			t.Errorf("%+v %v", object, err)
		}
	}
	if err := o.Delete(ctx, "data/x"); err != nil {
		t.Error(err)
	}
	if has, err := o.Has(ctx, "data/x"); has || err != nil {
		t.Error(has, err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := o.Delete(over, "data/x"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// daemon is a tgad daemon that keeps its backup in a bucket.
type daemon struct {
	*testing.T
	dir string
	cmd *exec.Cmd
	n   int // calls, each of which is denied and recorded
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	d := &daemon{T: t, dir: t.TempDir()}
	build := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", d.at("tgad"), "github.com/tgad/tgad/cmd/tgad")
	build.Dir, build.Env = "../..", append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	config := "[store]\nlow_water_bytes = 1\n[backup]\nto = \"s3://bucket/tgad\"\nevery = \"100ms\"\nshare = 100\n[[server]]\nid = \"nobody\"\ntype = \"http\"\nurl = \"http://127.0.0.1:1\"\n"
	if err := os.WriteFile(d.at("tgad.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TGAD_SOCKET", d.at("s"))
	t.Cleanup(func() { d.end(syscall.SIGKILL) })
	return d
}

func (d *daemon) at(name string) string { return filepath.Join(d.dir, name) }

// says runs a verb and returns its output.
func (d *daemon) says(args ...string) (string, int) {
	d.Helper()
	out, err := exec.Command(d.at("tgad"), args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		d.Fatal(err)
	}
	return string(out), 0
}

func (d *daemon) start() {
	d.Helper()
	log, err := os.OpenFile(d.at("log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command(d.at("tgad"), "serve", "--data", d.at("data"), "--config", d.at("tgad.toml"))
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		d.Fatal(err)
	}
	d.until("ready", func() bool { _, code := d.says("ready"); return code == 0 })
}

func (d *daemon) end(sig syscall.Signal) {
	if d.cmd == nil {
		return
	}
	if err := d.cmd.Process.Signal(sig); err != nil {
		d.Error(err)
	}
	_ = d.cmd.Wait() // it was killed
	d.cmd = nil
}

func (d *daemon) call() {
	d.Helper()
	d.n++
	if out, _ := d.says("call", "nobody", "nothing", fmt.Sprintf(`{"n":%d,"fill":%q}`, d.n, strings.Repeat("x", 2000)), "--key", fmt.Sprint("k", d.n)); !strings.Contains(out, "DENIED") {
		d.Fatalf("call: %s", out)
	}
}

func (d *daemon) until(what string, f func() bool) {
	d.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			raw, err := os.ReadFile(d.at("log"))
			d.Fatalf("%s: not within a minute: %s %v", what, raw, err)
		}
	}
}

// restored restores the bucket by the verb, and returns the number of traces.
func (d *daemon) restored() (traces int) {
	d.Helper()
	if err := os.RemoveAll(d.at("restored")); err != nil {
		d.Fatal(err)
	}
	if out, code := d.says("restore", "s3://bucket/tgad", "--data", d.at("restored")); code != 0 {
		d.Fatalf("restore: %d %s", code, out)
	}
	out, code := d.says("verify", d.at("restored"))
	if _, err := fmt.Sscanf(out, "ok: store of %d traces", &traces); err != nil || code != 0 {
		d.Fatalf("verify: %d %s", code, out)
	}
	return traces
}

// TestKilledInTheMiddleOfAnUpload kills the daemon again and again, while a body is on its way, and at a
// write of BACKUP that is done but not answered. Each time the bucket has a backup, and in the end it has
// everything. No secret is in the daemon's output.
func TestKilledInTheMiddleOfAnUpload(t *testing.T) {
	s := newService(t)
	d := newDaemon(t)
	d.start()
	d.call()
	d.until("a first backup", func() bool { return slices.Contains(s.names(t), "tgad/BACKUP") })
	has := d.restored()
	for round := range 4 {
		under, over := make(chan struct{}, 1), make(chan struct{})
		s.faulty(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			swap := strings.HasSuffix(r.URL.Path, "/BACKUP")
			if r.Method != http.MethodPut || swap != (round%2 == 1) {
				next.ServeHTTP(w, r)
				return
			}
			if swap {
				next.ServeHTTP(httptest.NewRecorder(), r)
			} else if _, err := io.CopyN(io.Discard, r.Body, 100); err != nil {
				t.Log(err)
			}
			select {
			case under <- struct{}{}:
			default:
			}
			<-over
		})
		d.call()
		<-under
		d.end(syscall.SIGKILL)
		s.faulty(nil)
		close(over)
		n := d.restored()
		if n < has {
			t.Errorf("round %d: %d traces, there were %d", round, n, has)
		}
		has = n
		d.start()
	}
	d.call()
	d.end(syscall.SIGTERM)
	if n := d.restored(); n != d.n {
		t.Errorf("%d traces, want %d", n, d.n)
	}
	raw, err := os.ReadFile(d.at("log"))
	if err != nil || bytes.Contains(raw, []byte(secret)) {
		t.Errorf("%v, the log has the secret: %s", err, raw)
	}
}

// TestFaultsOfAService: a part of all requests gets a 500 or 503, a connection that breaks before or after
// the request is done, or a body that is cut. The content of the bucket can be restored, and it becomes
// current.
func TestFaultsOfAService(t *testing.T) {
	s := newService(t)
	d := newDaemon(t)
	rng := rand.New(rand.NewPCG(1, 2))
	var faults atomic.Int64
	s.faulty(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch rng.IntN(12) {
		case 0, 1:
			http.Error(w, "<Error><Code>InternalError</Code></Error>", http.StatusInternalServerError)
		case 2:
			http.Error(w, "<Error><Code>SlowDown</Code></Error>", http.StatusServiceUnavailable)
		case 3:
			panic(http.ErrAbortHandler)
		case 4:
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case 5:
			answer := httptest.NewRecorder()
			next.ServeHTTP(answer, r)
			for name, values := range answer.Header() {
				w.Header()[name] = values
			}
			w.Header().Set("Content-Length", fmt.Sprint(answer.Body.Len()))
			w.WriteHeader(answer.Code)
			if _, err := w.Write(answer.Body.Bytes()[:answer.Body.Len()/2]); err != nil {
				t.Log(err)
			}
			panic(http.ErrAbortHandler)
		default:
			next.ServeHTTP(w, r)
			return
		}
		faults.Add(1)
	})
	d.start()
	for faults.Load() < 25 && d.n < 200 {
		d.call()
		time.Sleep(50 * time.Millisecond)
	}
	s.faulty(nil)
	d.call()
	d.until("a current backup", func() bool {
		return slices.Contains(s.names(t), "tgad/BACKUP") && d.restored() == d.n
	})
}

// TestLostObjectIsRefusedWithItsName removes each object in turn.
func TestLostObjectIsRefusedWithItsName(t *testing.T) {
	s := newService(t)
	d := newDaemon(t)
	d.start()
	d.call()
	d.end(syscall.SIGTERM)
	if n := d.restored(); n != 1 {
		t.Fatalf("%d traces", n)
	}
	for _, name := range s.names(t) {
		object, err := s.backend.GetObject("bucket", name, nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(object.Contents)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.backend.DeleteObject("bucket", name); err != nil {
			t.Fatal(err)
		}
		want := 3
		if name == "tgad/BACKUP" {
			want = 1
		}
		out, code := d.says("restore", "s3://bucket/tgad", "--data", d.at("lost"))
		if code != want || !strings.Contains(out, "s3://bucket/tgad") || !strings.Contains(out, strings.TrimPrefix(name, "tgad/")) {
			t.Errorf("%s is gone: %d %s", name, code, out)
		}
		if _, err := os.Stat(d.at("lost")); err == nil {
			t.Errorf("%s is gone: a store was made", name)
		}
		if _, err := s.backend.PutObject("bucket", name, object.Metadata, bytes.NewReader(raw), int64(len(raw)), nil); err != nil {
			t.Fatal(err)
		}
	}
	// Another store is refused, and the error says so.
	if err := os.Rename(d.at("data"), d.at("first")); err != nil {
		t.Fatal(err)
	}
	if out, code := d.says("init", "--data", d.at("data")); code != 0 {
		t.Fatal(out)
	}
	d.start()
	d.until("the refusal", func() bool {
		raw, err := os.ReadFile(d.at("log"))
		return err == nil && bytes.Contains(raw, []byte("holds the backup of store"))
	})
	if out, code := d.says("backup", "--to", "s3://bucket/tgad"); code == 0 || !strings.Contains(out, string(tga.ValidationError)) {
		t.Errorf("%d %s", code, out)
	}
	if out, code := d.says("backup", "--to", "s3://bucket/other"); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	if !slices.Contains(s.names(t), "other/BACKUP") {
		t.Error(s.names(t))
	}
}
