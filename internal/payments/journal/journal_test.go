//go:build unix

package journal

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// The test binary runs itself as a second writer of the journal named here.
const envPath = "PAYMENTS_TEST_JOURNAL"

func TestMain(m *testing.M) {
	if path := os.Getenv(envPath); path != "" {
		j, err := Open(path)
		for i := 0; err == nil && i < eachWriter; i++ {
			err = count(j)
		}
		if err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const eachWriter = 50

// count appends a charge whose number and amount depend on what it reads.
func count(j *Journal) error {
	return j.Update(func(tx *Tx) error {
		n := tx.Summary().Total().Charges + 1
		return tx.Append(Record{Op: Charged, Tool: "t", Key: strconv.FormatUint(n, 10), Account: "a", Amount: 1, N: n})
	})
}

func open(t *testing.T, path string) *Journal {
	t.Helper()
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A writer may die at any byte of its last line. That line was not acted on, so it does not count, and the
// next append begins a line of its own.
func TestTornLastLineCountsForNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "whole")
	j := open(t, path)
	for range 3 {
		if err := count(j); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := bytes.LastIndexByte(b[:len(b)-1], '\n') + 1
	for cut := last; cut <= len(b); cut++ {
		path := filepath.Join(dir, strconv.Itoa(cut))
		write(t, path, b[:cut])
		want := uint64(2)
		if cut == len(b) {
			want = 3
		}
		sum, err := Read(path)
		if err != nil || sum.Total().Charges != want {
			t.Fatalf("cut at %d: read %+v, %v, want %d charges", cut, sum, err, want)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, b[:cut]) {
			t.Fatalf("cut at %d: reading changed the file", cut)
		}
		if err := count(open(t, path)); err != nil {
			t.Fatal(err)
		}
		if sum, err = Read(path); err != nil || sum.Total().Charges != want+1 {
			t.Fatalf("cut at %d: after an append %+v, %v", cut, sum, err)
		}
	}
}

func TestBadLineIsAnError(t *testing.T) {
	for _, b := range []string{
		"{\"op\":\"charge\"\n", "\n", "{\"op\":\"charge\",\"more\":1}\n", "{}\nx\n{}\n",
	} {
		path := filepath.Join(t.TempDir(), "j")
		write(t, path, []byte(b))
		if _, err := Open(path); err == nil {
			t.Errorf("%q was opened", b)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != b {
			t.Errorf("%q was changed to %q", b, after)
		}
	}
}

// Two processes, two goroutines each: every charge has a different number.
func TestTwoProcessesShareAJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command(exe)
	other.Env = append(os.Environ(), envPath+"="+path)
	other.Stderr = os.Stderr
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	j := open(t, path)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range eachWriter {
				if err := count(j); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := other.Wait(); err != nil {
		t.Fatal(err)
	}
	sum, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	r := sum.Report()
	if r.Charges != 3*eachWriter || r.Double != 0 || len(r.Keys) != 3*eachWriter || sum.Charged() != 3*eachWriter {
		t.Errorf("%d charges under %d keys, %d of them double", r.Charges, len(r.Keys), r.Double)
	}
}
