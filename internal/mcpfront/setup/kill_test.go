//go:build unix

package setup

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestKilledInBetweenLeavesAWholeFile: while tgad is installed and uninstalled over and over, and after
// that process is killed, the file always has one of the two contents, whole.
func TestKilledInBetweenLeavesAWholeFile(t *testing.T) {
	const name = "TGAD_TEST_REPLACE"
	before := append([]byte(`{"mcpServers":{"a":{"command":"x","args":[]}}}`), bytes.Repeat([]byte(" "), 1<<20)...)
	if file := os.Getenv(name); file != "" {
		replaceForEver(t, file, before)
		return
	}
	after, _, err := Install(before, mcpJSON, front, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(file, before, 0o600); err != nil {
		t.Fatal(err)
	}
	seen := map[bool]int{}
	look := func() {
		now, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(now, before) && !bytes.Equal(now, after) {
			t.Fatalf("the file has %d bytes, %v", len(now), err)
		}
		seen[bytes.Equal(now, after)]++
	}
	for round := range 8 {
		cmd := exec.Command(os.Args[0], "-test.run", "TestKilledInBetweenLeavesAWholeFile")
		cmd.Env = append(os.Environ(), name+"="+file)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for range 20 + 7*round {
			look()
			time.Sleep(time.Millisecond)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		look()
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("nothing was replaced while somebody looked: %v", seen)
	}
}

func replaceForEver(t *testing.T, file string, original []byte) {
	for {
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(before, original) {
			after, _, err := Install(before, mcpJSON, front, nil)
			if err == nil {
				_, err = Put(file, before, after, original)
			}
			if err != nil {
				t.Fatal(err)
			}
		} else if back, err := PutBack(file, before); err != nil || !back {
			t.Fatal(back, err)
		}
	}
}
