package filecheck

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	soon = verify.Patience{Timeout: 20 * time.Second, Tries: 2, Delay: time.Millisecond, MaxDelay: time.Millisecond, SettleEvery: time.Millisecond}
	when = time.Date(2026, 1, 15, 19, 0, 0, 123456789, time.UTC)
)

const content = "twelve bytes"

// tree makes a root with a file, a directory and links, and a secret beside it.
func tree(t *testing.T) (root string) {
	t.Helper()
	dir := t.TempDir()
	root = filepath.Join(dir, "root")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "sub"), 0o755),
		os.WriteFile(filepath.Join(dir, "secret"), []byte(content), 0o644),
		os.WriteFile(filepath.Join(root, "sub", "f"), []byte(content), 0o644),
		os.WriteFile(filepath.Join(root, "empty"), nil, 0o644),
		os.Chtimes(filepath.Join(root, "sub", "f"), when, when),
		os.Symlink("sub/f", filepath.Join(root, "inside")),
		os.Symlink("../secret", filepath.Join(root, "outside")),
		os.Symlink(dir, filepath.Join(root, "out")),
		os.Symlink("nowhere", filepath.Join(root, "dangling")),
		syscall.Mkfifo(filepath.Join(root, "pipe"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func mustNew(t *testing.T, c Config) runtime.Verifier {
	t.Helper()
	if c.Tries == 0 {
		c.Patience = soon
	}
	v, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestFindings(t *testing.T) {
	const e, g, c, x = runtime.Exists, runtime.Gone, runtime.Changed, runtime.CannotTell
	sum := tga.Sum([]byte(content)).String()
	root := tree(t)
	for _, test := range []struct {
		id, version, etag string
		want              runtime.Finding
		failed            bool
	}{
		{"sub/f", "", "", e, false},
		{"sub/f", sum, "", e, false},
		{"sub/f", strings.ToUpper(sum), "", e, false},
		{"sub/f", tga.Sum([]byte("other")).String(), "", c, false},
		{"sub/f", "v1", "", x, false},
		{"sub/f", "", "12", e, false},
		{"sub/f", "", "13", c, false},
		{"sub/f", "", "2026-01-15T19:00:00.123456789Z", e, false},
		{"sub/f", "", "2026-01-15T20:00:00.123+01:00", e, false},
		{"sub/f", "", "2026-01-15T19:00:00Z", e, false},
		{"sub/f", "", "2026-01-15T19:00:00.124Z", c, false},
		{"sub/f", "", "2026-01-15T19:00:00.000Z", c, false},
		{"sub/f", "", "12 2026-01-15T19:00:00.123Z", e, false},
		{"sub/f", "", "11 2026-01-15T19:00:00.123Z", c, false},
		{"sub/f", sum, "12 2026-01-15T19:00:01Z", c, false},
		{"sub/f", tga.Sum([]byte("other")).String(), "12", c, false},
		{"sub/f", "", "-1", x, true},
		{"sub/f", "", "big", x, true},
		{"sub/f", "", "x 2026-01-15T19:00:00Z", x, true},
		{"empty", tga.Sum(nil).String(), "0", e, false},
		{"inside", sum, "12", e, false},
		{"sub", "", "", e, false},
		{"sub", sum, "", c, false},
		{"sub", "", "12", c, false},
		{"pipe", "", "", e, false},
		{"pipe", sum, "", c, false},
		{"none", "", "", g, false},
		{"none", sum, "12", g, false},
		{"sub/f/x", "", "", g, false},
		{"dangling", "", "", g, false},
		{"outside", "", "", x, true},
		{"outside", sum, "", x, true},
		{"out/secret", "", "", x, true},
		{"../secret", "", "", x, true},
		{"sub/../../secret", "", "", x, true},
		{"/etc/passwd", "", "", x, true},
		{"", "", "", x, true},
		{"sub//f", "", "", x, true},
		{"sub/./f", "", "", x, true},
		{"sub/f\x00", "", "", x, true},
	} {
		change := tga.StateChange{ResourceType: "file", ResourceID: test.id, Version: test.version, ETag: test.etag, Operation: "create"}
		f, evidence, err := mustNew(t, Config{Root: root}).Verify(t.Context(), change)
		if f != test.want || (err != nil) != test.failed {
			t.Errorf("%+v: got %v, %v: %s", test, f, err, evidence.Detail)
		}
		if strings.Contains(string(evidence.Detail), content) {
			t.Errorf("%q: the content is in the evidence: %s", test.id, evidence.Detail)
		}
	}
}

// TestNothingOutsideIsRead: not even the existence of a file outside is revealed.
func TestNothingOutsideIsRead(t *testing.T) {
	root := tree(t)
	for _, id := range []string{"outside", "out/secret", "../secret"} {
		before, _, _ := mustNew(t, Config{Root: root}).Verify(t.Context(), tga.StateChange{ResourceID: id})
		f, evidence, err := mustNew(t, Config{Root: root}).Verify(t.Context(), tga.StateChange{ResourceID: id, Version: tga.Sum([]byte(content)).String()})
		if f != runtime.CannotTell || before != f || err == nil || strings.Contains(string(evidence.Detail), "size") {
			t.Errorf("%s: %v, %v, %v, %s", id, before, f, err, evidence.Detail)
		}
	}
}

func TestLimitOfBytes(t *testing.T) {
	root := tree(t)
	change := tga.StateChange{ResourceID: "sub/f", Version: tga.Sum([]byte(content)).String()}
	for limit, want := range map[int64]runtime.Finding{12: runtime.Exists, 11: runtime.CannotTell} {
		if f, _, err := mustNew(t, Config{Root: root, MaxBytes: limit}).Verify(t.Context(), change); f != want || err != nil {
			t.Errorf("%d: got %v, %v", limit, f, err)
		}
	}
}

// TestRootThatIsNotThereCannotTell: the disk may not be mounted.
func TestRootThatIsNotThereCannotTell(t *testing.T) {
	root := tree(t)
	v := mustNew(t, Config{Root: root})
	if err := os.Rename(root, root+"2"); err != nil {
		t.Fatal(err)
	}
	if f, _, err := v.Verify(t.Context(), tga.StateChange{ResourceID: "sub/f"}); f != runtime.CannotTell || err == nil {
		t.Errorf("got %v, %v", f, err)
	}
	if err := os.Rename(root+"2", root); err != nil {
		t.Fatal(err)
	}
	if f, _, err := v.Verify(t.Context(), tga.StateChange{ResourceID: "sub/f"}); f != runtime.Exists || err != nil {
		t.Errorf("got %v, %v", f, err)
	}
}

func TestDeletionAndLateFile(t *testing.T) {
	root := tree(t)
	deleted := tga.StateChange{ResourceID: "none", Operation: verify.OperationDelete, Version: "x"}
	if f, _, err := mustNew(t, Config{Root: root}).Verify(t.Context(), deleted); f != runtime.Exists || err != nil {
		t.Errorf("got %v, %v", f, err)
	}
	deleted.ResourceID = "empty"
	if f, _, err := mustNew(t, Config{Root: root, Ignore: []string{"version"}}).Verify(t.Context(), deleted); f != runtime.Changed || err != nil {
		t.Errorf("got %v, %v", f, err)
	}
	// The file appears while it is asked for: the settling time is long enough for any machine.
	late := soon
	late.Settle = 20 * time.Second
	late.SettleEvery = 20 * time.Millisecond
	made := make(chan error, 1)
	go func() { made <- os.WriteFile(filepath.Join(root, "late"), nil, 0o644) }()
	if f, _, err := mustNew(t, Config{Root: root, Patience: late}).Verify(t.Context(), tga.StateChange{ResourceID: "late"}); f != runtime.Exists || err != nil {
		t.Errorf("got %v, %v", f, err)
	}
	if err := <-made; err != nil {
		t.Fatal(err)
	}
}

func TestCancelEndsTheReading(t *testing.T) {
	root := tree(t)
	if err := os.Truncate(filepath.Join(root, "empty"), 1<<40); err != nil { // sparse: reading it would not end
		t.Fatal(err)
	}
	p := soon
	p.Timeout, p.Tries = 50*time.Millisecond, 1
	v := mustNew(t, Config{Root: root, MaxBytes: 1 << 41, Patience: p})
	f, _, err := v.Verify(t.Context(), tga.StateChange{ResourceID: "empty", Version: tga.Sum(nil).String()})
	if f != runtime.CannotTell || !errors.Is(err, tga.ToolTimeout) {
		t.Errorf("got %v, %v", f, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f, _, err := v.Verify(ctx, tga.StateChange{ResourceID: "empty"}); f != runtime.CannotTell || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", f, err)
	}
}

// TestFileThatChangesIsReadAgain swaps the file between the look and the reading.
func TestFileThatChangesIsReadAgain(t *testing.T) {
	root := tree(t)
	at, err := os.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	info, err := at.Stat("sub/f")
	if err != nil {
		t.Fatal(err)
	}
	l := &look{Config{Root: root, MaxBytes: DefaultMaxBytes}}
	if sum, err := l.digest(t.Context(), at, "sub/f", info); err != nil || sum != tga.Sum([]byte(content)).String() {
		t.Fatalf("got %s, %v", sum, err)
	}
	for _, swap := range []func(string) error{
		func(p string) error { return os.WriteFile(p, []byte("another content"), 0o644) },
		func(p string) error { return syscall.Mkfifo(p, 0o644) },
	} {
		path := filepath.Join(root, "sub", "f")
		if err := errors.Join(os.Rename(path, path+"-old"), swap(path)); err != nil {
			t.Fatal(err)
		}
		if sum, err := l.digest(t.Context(), at, "sub/f", info); err == nil {
			t.Errorf("got %s of a file that was replaced", sum)
		}
		if err := errors.Join(os.Remove(path), os.Rename(path+"-old", path)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFileThatGrowsIsNoAnswer: a file of /proc has more content than its size says, like a file
// that grows between the two looks at it.
func TestFileThatGrowsIsNoAnswer(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc here")
	}
	change := tga.StateChange{ResourceID: "self/status", Version: tga.Sum(nil).String()}
	if f, _, err := mustNew(t, Config{Root: "/proc"}).Verify(t.Context(), change); f != runtime.CannotTell || err == nil || !strings.Contains(err.Error(), "changed while it was read") {
		t.Errorf("got %v, %v", f, err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, test := range []struct {
		c   Config
		key string
	}{
		{Config{Root: "/"}, ""},
		{Config{}, "root"},
		{Config{Root: "/", MaxBytes: -1}, "max_bytes"},
		{Config{Root: "/", Ignore: []string{"size"}}, "ignore"},
		{Config{Root: "/", Patience: verify.Patience{Timeout: -1}}, "timeout"},
	} {
		v, err := New(test.c)
		if (err == nil) != (test.key == "") || (v != nil) != (err == nil) || err != nil && (!errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), " "+test.key+": ")) {
			t.Errorf("%+v: got %v, want an error about %q", test.c, err, test.key)
		}
	}
}
