//go:build unix

package checkpoint

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestGitThatIsStoppedLeavesNoLock: a commit that took too long keeps none after it from the repository.
func TestGitThatIsStoppedLeavesNoLock(t *testing.T) {
	key, repo := newSigner(t, origin), t.TempDir()
	git := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("git", append([]string{"-C", repo}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	git("init", "-q")
	// Its filter runs while git holds the lock. A signal in the first moments after git has made it, before its handler is whole,
	// leaves the lock behind: no command can help that, and the test waits for the filter.
	started := filepath.Join(t.TempDir(), "started")
	git("config", "filter.slow.clean", "touch '"+started+"'; sleep 30")
	if err := os.WriteFile(filepath.Join(repo, ".gitattributes"), []byte("checkpoint filter=slow\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	place, raw := Git{Dir: repo, File: "checkpoint"}, signed(t, at(1), key)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := place.Put(ctx, raw, nil)
		done <- err
	}()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(started); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the filter does not run")
		}
	}
	if _, err := os.Stat(filepath.Join(repo, ".git", "index.lock")); err != nil {
		t.Fatalf("git holds no lock: %v", err)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("it was not stopped")
	}
	if err := os.Remove(filepath.Join(repo, ".gitattributes")); err != nil {
		t.Fatal(err)
	}
	if _, err := place.Put(t.Context(), raw, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := place.Newest(t.Context(), nil, nil); err != nil || !bytes.Equal(got, raw) {
		t.Errorf("it has %q, %v", got, err)
	}
}
