package config

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMemoryIsTheLeastLimit: the memory is the least of the limits of the machine, of every control group
// above the process in both versions, and of $GOMEMLIMIT.
func TestMemoryIsTheLeastLimit(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		files   map[string]string
		goLimit int64
		want    int64
	}{
		"nothing says":    {nil, math.MaxInt64, 0},
		"the machine":     {map[string]string{"proc/meminfo": "MemFree: 1 kB\nMemTotal:       8388608 kB\n"}, math.MaxInt64, 8 * gib},
		"GOMEMLIMIT":      {map[string]string{"proc/meminfo": "MemTotal: 8388608 kB\n"}, gib, gib},
		"a container, v2": {map[string]string{"proc/meminfo": "MemTotal: 8388608 kB\n", "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n"}, math.MaxInt64, gib},
		"the slice above": {map[string]string{
			"proc/meminfo": "MemTotal: 8388608 kB\n", "proc/self/cgroup": "0::/system.slice/tgad.service\n",
			"sys/fs/cgroup/system.slice/tgad.service/memory.max": "max\n", "sys/fs/cgroup/system.slice/memory.max": "2147483648\n",
		}, math.MaxInt64, 2 * gib},
		"v1": {map[string]string{
			"proc/meminfo": "MemTotal: 8388608 kB\n", "proc/self/cgroup": "5:cpu,memory:/box\n0::/box\n",
			"sys/fs/cgroup/memory/box/memory.limit_in_bytes": "1073741824\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, math.MaxInt64, gib},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			at := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := memoryIn(root, c.goLimit); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if Memory() <= 0 {
		t.Error("this machine does not say how much memory it has")
	}
}

// TestBodyBudget: the default has room for two bodies however little memory there is, and
// one that has no room for one body is refused.
func TestBodyBudget(t *testing.T) {
	for _, c := range []struct{ memory, request, want int64 }{{0, 10, 22}, {1 << 30, 16 << 20, 64 << 20}, {1 << 28, 16 << 20, 32<<20 + 2}} {
		if got := DefaultBodyBudget(c.memory, c.request); got != c.want {
			t.Errorf("%d bytes of memory and requests of %d: %d, want %d", c.memory, c.request, got, c.want)
		}
	}
	for text, ok := range map[string]bool{
		"request_bytes = 1000\nbody_budget = 1000\n": false,
		"request_bytes = 1000\nbody_budget = 1001\n": true,
		"body_budget = \"16MiB\"\n":                  false,
		"body_budget = \"17MiB\"\n":                  true,
		"body_budget = -1\n":                         false,
	} {
		_, err := Parse("test.toml", []byte("[limits]\n"+text), nil)
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "body_budget") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
