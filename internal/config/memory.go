package config

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// DefaultBodyBudget is the default limit of the request bodies in memory together, in bytes. It is a
// sixteenth of the memory, because a call takes up to ten times its body until it is durable, and
// at least room for two of the largest bodies. memory is 0 if it is not known.
func DefaultBodyBudget(memory, requestBytes int64) int64 {
	return max(memory/16, 2*(requestBytes+1))
}

// Memory is how many bytes this process may use: the smallest of $GOMEMLIMIT, the limits of its
// control groups and the machine's memory. 0 means that none of them is known.
func Memory() int64 { return memoryIn("/", debug.SetMemoryLimit(-1)) }

// memoryIn is Memory with the /proc and /sys below root.
func memoryIn(root string, goLimit int64) int64 {
	least := goLimit
	take := func(n int64, ok bool) {
		if ok && n > 0 {
			least = min(least, n)
		}
	}
	take(memTotal(filepath.Join(root, "proc/meminfo")))
	for _, g := range memoryGroups(filepath.Join(root, "proc/self/cgroup")) {
		// A limit of a parent also applies to its children. Inside a container the path often does not
		// exist. Then the mount itself is the group, and the loop ends there in any case.
		for at := g.path; ; at = path.Dir(at) {
			for _, mount := range g.mounts {
				take(number(filepath.Join(root, mount, at, g.file)))
			}
			if at == "/" || at == "." {
				break
			}
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// memoryGroup is a control group that may limit memory.
type memoryGroup struct {
	mounts []string
	path   string
	file   string
}

func memoryGroups(file string) []memoryGroup {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil // there are no control groups, so they limit nothing
	}
	var all []memoryGroup
	for line := range strings.Lines(string(raw)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(part) != 3:
		case part[1] == "":
			all = append(all, memoryGroup{[]string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}, part[2], "memory.max"})
		case strings.Contains(","+part[1]+",", ",memory,"):
			all = append(all, memoryGroup{[]string{"sys/fs/cgroup/memory"}, part[2], "memory.limit_in_bytes"})
		}
	}
	return all
}

// number reads a file that holds a number; "max" is none.
func number(file string) (int64, bool) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(raw)), 10, 64)
	return n, err == nil
}

func memTotal(file string) (int64, bool) {
	f, err := os.Open(file)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}
