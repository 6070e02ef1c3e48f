package measure

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// usage is what this process has used since it began.
type usage struct {
	cpu     time.Duration // user and system, all threads
	allocs  uint64
	written uint64 // bytes handed to write calls; 0 where the system does not say
}

func used() usage {
	var u usage
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err == nil {
		u.cpu = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.allocs = m.Mallocs
	u.written = bytesWritten()
	return u
}

// bytesWritten reads wchar of /proc/self/io: the bytes that the process passed to write calls,
// also on sockets. The kernel's count of bytes sent to the disk (write_bytes) is of no use: it
// counts a whole folio, up to 1 MiB, for each append into it.
func bytesWritten() uint64 {
	raw, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0 // no Linux
	}
	for line := range bytes.Lines(raw) {
		if v, ok := bytes.CutPrefix(line, []byte("wchar: ")); ok {
			n, err := strconv.ParseUint(string(bytes.TrimSpace(v)), 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

func (u usage) minus(v usage) usage {
	return usage{cpu: u.cpu - v.cpu, allocs: u.allocs - v.allocs, written: u.written - v.written}
}
