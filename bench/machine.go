package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/internal/commit"
)

// about describes a run. With -json it is the first line.
type about struct {
	Commit  string    `json:"commit"` // a tree that differs from it ends in "+"
	Began   time.Time `json:"began"`
	Machine string    `json:"machine"`
	System  string    `json:"system"`
	Disk    string    `json:"disk"`
	Rounds  int       `json:"rounds,omitempty"`
	Slice   string    `json:"slice,omitempty"` // of a case in a round
	Facts   []string  `json:"facts,omitempty"` // what stands below the table
}

// String returns the lines above a table.
func (a about) String() string {
	return fmt.Sprintf("machine   %s\nsystem    %s\ndisk      %s\n", a.Machine, a.System, a.Disk)
}

// machine describes the machine and the file system of a run.
func machine(dir string) (a about, err error) {
	kernel, memory := system()
	fsys, err := fileSystem(dir)
	if err != nil {
		return a, err
	}
	cost, err := syncCost(dir)
	if err != nil {
		return a, err
	}
	return about{
		Commit: commit.Name(), Began: time.Now().UTC().Truncate(time.Second),
		Machine: fmt.Sprintf("%s, %d cores, GOMAXPROCS %d, %s %s/%s", processor(), goruntime.NumCPU(), goruntime.GOMAXPROCS(0), goruntime.Version(), goruntime.GOOS, goruntime.GOARCH),
		System:  fmt.Sprintf("Linux %s, %.1f GiB of memory", kernel, memory),
		Disk:    fmt.Sprintf("%s; pwrite of 1 KiB and fdatasync in a sized file: p50 %s, p99 %s", fsys, cost[len(cost)/2], cost[len(cost)*99/100]),
	}, nil
}

func processor() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range bytes.Lines(raw) {
		if _, name, ok := bytes.Cut(line, []byte(": ")); ok && bytes.HasPrefix(line, []byte("model name")) {
			return string(bytes.TrimSpace(name))
		}
	}
	return "unknown processor"
}

func system() (kernel string, gib float64) {
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		kernel = string(bytes.TrimRight(u.Release[:], "\x00"))
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		gib = float64(info.Totalram) * float64(info.Unit) / (1 << 30)
	}
	return kernel, gib
}

// fileSystem names the file system that dir lies on, by the longest mount point above it.
func fileSystem(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	raw, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return "", err
	}
	best, name := "", "unknown"
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) < 4 || len(f[1]) < len(best) || f[1] != "/" && dir != f[1] && !strings.HasPrefix(dir, f[1]+"/") {
			continue
		}
		best, name = f[1], fmt.Sprintf("%s on %s (%s)", f[2], f[0], f[3])
	}
	return name, nil
}

// syncCost returns the sorted times of 200 synced writes, made while nothing else writes here.
func syncCost(dir string) (took []time.Duration, err error) {
	f, err := os.CreateTemp(dir, "sync")
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
		if e := os.Remove(f.Name()); err == nil {
			err = e
		}
	}()
	const n, size = 200, 1 << 10
	if _, err := f.Write(make([]byte, n*size)); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	for i := range n {
		start := time.Now()
		if _, err := f.WriteAt(make([]byte, size), int64(i)*size); err != nil {
			return nil, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took, nil
}
