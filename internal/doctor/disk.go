//go:build unix

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/runtime/client"
)

// lowWater returns the free space under which no new call is taken: that of the daemon's configuration or, if no daemon
// says it, the default.
func lowWater(ctx context.Context, c *client.Client) uint64 {
	if m, err := metrics(ctx, c); err == nil {
		if mark, err := m.Value("tgad_disk_low_water_bytes"); err == nil && mark > 0 {
			return uint64(mark)
		}
	}
	return 1 << 30
}

func freeSpace(dir string, low uint64) Finding {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Finding{"space", Bad, err.Error(), ""}
	}
	free := st.Bavail * uint64(st.Bsize)
	f := Finding{"space", OK, fmt.Sprintf("%.1f GiB free", float64(free)/(1<<30)), ""}
	switch {
	case free < low:
		f.Verdict, f.Remedy = Bad, fmt.Sprintf("Below %.3g GiB no new call is taken; those open still end. Free some space.", float64(low)/(1<<30))
	case free/4 < low:
		f.Verdict, f.Remedy = Warn, fmt.Sprintf("Below %.3g GiB no new call is taken.", float64(low)/(1<<30))
	}
	return f
}

// fileSystems lists the file systems on which a synced write may not be durable, by the
// magic number of statfs(2).
var fileSystems = map[int64]struct {
	name    string
	verdict Verdict
	remedy  string
}{
	0x01021994: {"tmpfs", Bad, "It is memory: nothing survives a power cut. Fine for a test."},
	0x858458f6: {"ramfs", Bad, "It is memory: nothing survives a power cut."},
	0x6969:     {"NFS", Bad, "Locks and syncs over NFS are as good as its server says they are. Use a local disk."},
	0xff534d42: {"CIFS", Bad, "Use a local disk."},
	0x65735546: {"FUSE", Warn, "Whether a sync reaches a disk is the FUSE program's to decide."},
	0x794c7630: {"overlayfs", Warn, "A container's own layer goes with the container. Mount a volume."},
}

func fileSystem(dir string) Finding {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Finding{"filesystem", Bad, err.Error(), ""}
	}
	if bad, ok := fileSystems[int64(st.Type)&0xffffffff]; ok {
		return Finding{"filesystem", bad.verdict, bad.name, bad.remedy}
	}
	return Finding{"filesystem", OK, fmt.Sprintf("local (type %#x)", uint32(st.Type)), ""}
}

const (
	syncSamples = 100
	syncBytes   = 4096
)

// syncLatency measures a synced write. Every call waits for two of these. The file is
// overwritten in place, like the log: an append would measure the file system's own log too.
func syncLatency(dir string) Finding {
	times, err := syncTimes(dir)
	if err != nil {
		return Finding{"fsync", Bad, err.Error(), ""}
	}
	slices.Sort(times)
	p50, p99, most := times[len(times)/2], times[len(times)*99/100], times[len(times)-1]
	f := Finding{"fsync", OK, fmt.Sprintf("p50 %s, p99 %s, max %s over %d synced writes of %d bytes",
		round(p50), round(p99), round(most), len(times), syncBytes), ""}
	switch {
	case p50 < 5*time.Microsecond:
		f.Verdict, f.Remedy = Bad, "No disk is that fast: the sync does nothing, and a power cut takes what was acknowledged."
	case p50 > 20*time.Millisecond:
		f.Verdict, f.Remedy = Warn, "Every call waits for two of these. A disk with power-loss protection takes 0.05 ms."
	}
	return f
}

func round(d time.Duration) time.Duration { return d.Round(time.Microsecond) }

func syncTimes(dir string) (times []time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".tgad-doctor-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	page := make([]byte, syncBytes)
	for i := range 64 {
		if _, err := f.WriteAt(page, int64(i*syncBytes)); err != nil {
			return nil, err
		}
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	for i := range syncSamples {
		page[0] = byte(i)
		start := time.Now()
		if _, err := f.WriteAt(page, int64(i%64)*syncBytes); err != nil {
			return nil, err
		}
		if err := dataSync(f); err != nil {
			return nil, err
		}
		times = append(times, time.Since(start))
	}
	return times, nil
}

// lockHolder tries to take the lock of the store, and releases it at once.
func lockHolder(dir string) Finding {
	name := filepath.Join(dir, "tgad.lock")
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return Finding{"lock", OK, "never taken", ""}
	}
	if err != nil {
		return Finding{"lock", Bad, err.Error(), ""}
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		return Finding{"lock", OK, "free", ""}
	case !errors.Is(err, unix.EWOULDBLOCK):
		return Finding{"lock", Bad, err.Error(), ""}
	}
	pid, err := os.ReadFile(name)
	if err != nil {
		return Finding{"lock", Bad, err.Error(), ""}
	}
	who := "process " + strings.TrimSpace(string(pid))
	if state := processState(strings.TrimSpace(string(pid))); state != "" {
		who += ", " + state
	}
	return Finding{"lock", OK, "held by " + who, ""}
}
