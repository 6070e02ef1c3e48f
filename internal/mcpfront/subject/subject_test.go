package subject

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestSubjectIsKeyed: two shims of one directory derive the same subject, shims of two directories do
// not, and the subject cannot be computed from the token alone.
func TestSubjectIsKeyed(t *testing.T) {
	dir := t.TempDir()
	all := map[string]bool{}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range 8 {
		wg.Go(func() {
			s, err := ReadSecret(dir)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			all[s.Of("Basic dTpw")] = true
		})
	}
	wg.Wait()
	other, err := ReadSecret(t.TempDir())
	if err != nil || len(all) != 1 || all[other.Of("Basic dTpw")] || other.Of("") != "" || other.Of("a") == other.Of("b") {
		t.Errorf("%v, %v", all, err)
	}
	info, err := os.Stat(filepath.Join(dir, subjectKeyFile))
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != subjectKeySize {
		t.Errorf("%v, %v", info, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.*.*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := os.Truncate(filepath.Join(dir, subjectKeyFile), 31); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSecret(dir); err == nil {
		t.Error("a secret of 31 bytes is taken")
	}
}
