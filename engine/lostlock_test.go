//go:build unix

package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/schemas/tga"
)

// TestHolderNoticesThatItsLockIsGone: somebody removes or replaces the lock files, or the
// directory, of a store that is open. No second open gets at its files, and the holder
// stops by itself, within two seconds or with the next log file.
func TestHolderNoticesThatItsLockIsGone(t *testing.T) {
	for name, take := range map[string]func(dir string) error{
		"removed": func(dir string) error {
			if err := os.Remove(filepath.Join(dir, "index", "LOCK")); err != nil {
				return err
			}
			return os.Remove(filepath.Join(dir, "tgad.lock"))
		},
		"replaced": func(dir string) error {
			at := filepath.Join(dir, "tgad.lock")
			if err := os.Remove(at); err != nil {
				return err
			}
			return os.WriteFile(at, nil, 0o600)
		},
		"directory moved away": func(dir string) error { return os.Rename(dir, dir+"-moved") },
		"directory replaced": func(dir string) error {
			if err := os.Rename(dir, dir+"-moved"); err != nil {
				return err
			}
			return os.Mkdir(dir, 0o700)
		},
	} {
		for _, rotate := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "store")
				db, err := engine.Open(dir, plain)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = db.Close() }() // it says what stopped it
				run(t, db, spec{trace: id(1)})
				if err := take(dir); err != nil {
					t.Fatal(err)
				}
				for _, at := range []string{dir, dir + "-moved"} {
					if p, err := os.Stat(filepath.Join(at, "WATERMARK")); err == nil && p != nil {
						_, err := reopen(at, plain)
						wantCode(t, err, tga.StateLockAcquireFailed)
					}
				}
				began := time.Now()
				for i := uint64(2); db.Stats().Poisoned == ""; i++ {
					if time.Since(began) > 20*time.Second {
						t.Fatal("the holder goes on")
					}
					if !rotate {
						time.Sleep(10 * time.Millisecond)
						continue
					}
					m := spec{trace: id(i), args: `{"fill":"` + noise(i, 5000) + `"}`}.make(t)
					lease, err := db.Acquire(context.Background(), id(i))
					if err == nil {
						_, err = db.Append(context.Background(), lease, m.begin())
					}
					if err != nil {
						wantCode(t, err, tga.StoreUnavailable)
					}
				}
				t.Logf("noticed after %v", time.Since(began).Round(time.Millisecond))
				_, err = db.Acquire(context.Background(), id(1000))
				wantCode(t, err, tga.StoreUnavailable)
			})
		}
	}
}
