package daemon

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// TestStoppedStoreEndsTheDaemon: a sync fails while a call is under way. The caller is
// told that the store stopped, Run returns an error, and the next daemon finds only what
// was durable.
func TestStoppedStoreEndsTheDaemon(t *testing.T) {
	b := setup(t, "")
	disk := &failingFS{FS: vfs.Default}
	o := b.options()
	o.Tune = func(e *engine.Options) { e.FS = disk }
	ready := make(chan struct{})
	o.Ready = func() { close(ready) }
	ended := make(chan error, 1)
	go func() { ended <- Run(t.Context(), o) }()
	<-ready
	b.client = client.New(b.socket, client.Options{})
	defer b.client.Close()
	if _, err := b.client.Call(t.Context(), charge("order-1")); err != nil {
		t.Fatal(err)
	}
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		disk.broken.Store(true) // the effect cannot be recorded
		if _, err := w.Write([]byte("1")); err != nil {
			t.Error(err)
		}
	})
	_, err := b.client.Call(t.Context(), charge("order-2"))
	wantCode(t, err, tga.StoreUnavailable)
	wantCode(t, <-ended, tga.StoreUnavailable)
	stuck = append(stuck, goleak.IgnoreCurrent())

	b.tool.respond(nil)
	b.start()
	if res, err := b.client.Call(t.Context(), charge("order-1")); err != nil || res.ServedFrom.IsZero() || b.tool.sends("order-1") != 1 {
		t.Errorf("what was durable: %+v %v", res, err)
	}
}

// failingFS fails the syncs of log files once it is broken.
type failingFS struct {
	vfs.FS
	broken atomic.Bool
}

func (f *failingFS) Unwrap() vfs.FS { return f.FS }

func (f *failingFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return f.wrap(name, file, err)
}

func (f *failingFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(old, name, c)
	return f.wrap(name, file, err)
}

func (f *failingFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, o...)
	return f.wrap(name, file, err)
}

func (f *failingFS) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.Contains(name, "/log/") {
		return file, err
	}
	return &failingFile{file, f}, nil
}

type failingFile struct {
	vfs.File
	fs *failingFS
}

func (f *failingFile) fails() error {
	if f.fs.broken.Load() {
		return errors.New("the disk is gone")
	}
	return nil
}

func (f *failingFile) Sync() error     { return errors.Join(f.fails(), f.File.Sync()) }
func (f *failingFile) SyncData() error { return errors.Join(f.fails(), f.File.SyncData()) }
func (f *failingFile) SyncTo(n int64) (bool, error) {
	full, err := f.File.SyncTo(n)
	return full, errors.Join(f.fails(), err)
}

// TestRestoredStoreIsFrozen: a restored backup can be read and refuses writes, until somebody accepts
// that appends may be missing.
func TestRestoredStoreIsFrozen(t *testing.T) {
	b := start(t, "")
	if _, err := b.client.Call(t.Context(), charge("order-1")); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(b.dir, "backup")
	if err := b.client.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.data = filepath.Join(b.dir, "restored")
	if err := engine.Restore(t.Context(), backup, b.data, engine.Options{}); err != nil {
		t.Fatal(err)
	}
	b.start()
	if err := b.client.Healthy(t.Context()); err != nil {
		t.Errorf("a frozen store is not healthy: %v", err)
	}
	wantCode(t, b.client.Ready(t.Context()), tga.StoreUnavailable)
	// It is whole: what it lacks was never in it.
	if v, err := b.client.Verify(t.Context(), tga.ID{}); err != nil || !v.OK || v.Frozen == "" {
		t.Errorf("verify of a restored store: %+v %v", v, err)
	}
	if lines := strings.Count(string(b.content()), "\n"); lines != 2 {
		t.Errorf("%d lines of the log are read, want 2", lines)
	}
	_, err := b.client.Call(t.Context(), charge("order-2"))
	wantCode(t, err, tga.StoreUnavailable)
	wantCode(t, b.client.Unfreeze(t.Context(), false), tga.ValidationError)
	if err := b.client.Unfreeze(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := b.client.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if _, _, raw := b.raw("GET", "/readyz", ""); !strings.Contains(string(raw), "quarantine") {
		t.Errorf("ready says %s", raw)
	}
	// What was lost may have used any key: the caller has to say that this one is fresh.
	if res, err := b.client.Call(t.Context(), charge("order-3")); err == nil && res.State == tga.Completed || b.tool.sends("order-3") != 0 {
		t.Errorf("an unused key in quarantine: %+v %v, %d sends", res, err, b.tool.sends("order-3"))
	}
	fresh := charge("order-4")
	fresh.Fresh = true
	if res, err := b.client.Call(t.Context(), fresh); err != nil || res.State != tga.Completed || b.tool.sends("order-4") != 1 {
		t.Errorf("a fresh key in quarantine: %+v %v", res, err)
	}
	if err := b.client.EndQuarantine(t.Context()); err != nil {
		t.Error(err)
	}
	if res, err := b.client.Call(t.Context(), charge("order-1")); err != nil || b.tool.sends("order-1") != 1 {
		t.Errorf("what the backup had: %+v %v, %d sends", res, err, b.tool.sends("order-1"))
	}
}

// TestFrozenStoreSaysSoEverywhere: acknowledged records are missing from the log. The probes
// and the verification say so, and nothing asks for a restart. lostlog.txtar compares it with
// the verification of a store that nobody has open.
func TestFrozenStoreSaysSoEverywhere(t *testing.T) {
	b := start(t, "")
	if _, err := b.client.Call(t.Context(), charge("order-1")); err != nil {
		t.Fatal(err)
	}
	b.stop()
	logs, err := filepath.Glob(filepath.Join(b.data, "log", "*1"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	log, err := os.ReadFile(logs[0])
	if err == nil { // the last records are gone
		err = os.Truncate(logs[0], int64(len(bytes.TrimRight(log, "\x00")))*7/8)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.start()
	v, err := b.client.Verify(t.Context(), tga.ID{})
	if err != nil || v.OK || len(v.Faults) == 0 || v.Faults[len(v.Faults)-1].Code != tga.StateChecksumMismatch {
		t.Errorf("verify: %+v %v", v, err)
	}
	if err := b.client.Live(t.Context()); err != nil {
		t.Errorf("a restart probe would restart it: %v", err)
	}
	for name, err := range map[string]error{"healthz": b.client.Healthy(t.Context()), "readyz": b.client.Ready(t.Context())} {
		wantCode(t, err, tga.StoreUnavailable)
		if err == nil || !strings.Contains(err.Error(), "frozen") {
			t.Errorf("%s does not say frozen: %v", name, err)
		}
	}
	if err := b.client.Unfreeze(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if v, err := b.client.Verify(t.Context(), tga.ID{}); err != nil || !v.OK || v.Frozen != "" {
		t.Errorf("after the loss was accepted: %+v %v", v, err)
	}
	if err := errors.Join(b.client.Healthy(t.Context()), b.client.Ready(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestNotReadyRefusesCalls: until the open traces are classified, calls are refused as retryable, and
// requests that only read are answered.
func TestNotReadyRefusesCalls(t *testing.T) {
	b := setup(t, "")
	d, err := open(t.Context(), withClock(b.options()))
	if err != nil {
		t.Fatal(err)
	}
	s, err := bind(b.socket, "")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: d, ConnContext: identify}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(d.door(s)) }()
	b.client = client.New(b.socket, client.Options{})
	defer func() {
		b.client.Close()
		err := srv.Close()
		if <-served; err != nil {
			t.Error(err)
		}
		closing(t, s)
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}()
	_, err = b.client.Call(t.Context(), charge("order-1"))
	wantCode(t, err, tga.StoreUnavailable)
	if p, ok := client.ProblemIn(err); !ok || !p.Retryable || p.Status != 503 {
		t.Errorf("problem %+v", p)
	}
	wantCode(t, b.client.Ready(t.Context()), tga.StoreUnavailable)
	if err := b.client.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := b.client.InDoubt(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.start(t.Context(), b.options()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Call(t.Context(), charge("order-1")); err != nil {
		t.Error(err)
	}
}

// TestServiceManagerIsTold plays the service manager: it hands the socket in and listens
// to what the daemon says of itself.
func TestServiceManagerIsTold(t *testing.T) {
	b := setup(t, "")
	if err := os.Mkdir(filepath.Dir(b.socket), 0o750); err != nil {
		t.Fatal(err)
	}
	notifyPath := filepath.Join(b.dir, "notify")
	n, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notifyPath, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := b.command([]*os.File{f}, "NOTIFY_SOCKET="+notifyPath)
	told := func() string {
		msg := make([]byte, 100)
		k, err := n.Read(msg)
		if err != nil {
			t.Fatal(err)
		}
		return string(msg[:k])
	}
	if s := told(); s != "READY=1" {
		t.Errorf("the daemon says %q", s)
	}
	if _, err := b.client.Call(t.Context(), charge("order-1")); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if s := told(); s != "STOPPING=1" {
		t.Errorf("the daemon says %q", s)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
	if _, err := os.Lstat(b.socket); err != nil {
		t.Errorf("the manager's socket is gone: %v", err)
	}
}

// TestHandedSocketIsForItsProcess: LISTEN_FDS with another's pid is not ours.
func TestHandedSocketIsForItsProcess(t *testing.T) {
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("LISTEN_FDS", "1")
	if l, err := handed(); l != nil || err != nil {
		t.Errorf("another's socket is taken: %v %v", l, err)
	}
	if os.Getenv("LISTEN_FDS") != "1" {
		t.Error("another's variables are removed")
	}
}

func withClock(o Options) Options {
	o.Clock = time.Now
	return o
}
