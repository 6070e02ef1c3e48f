package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// syscallInfo is the kernel's ptrace_syscall_info at a seccomp stop.
type syscallInfo struct {
	Op     uint8
	_      [3]uint8
	Arch   uint32
	IP, SP uint64
	Nr     uint64
	Args   [6]uint64
	Data   uint32
	_      uint32
}

// traced runs a victim under ptrace and kills it before its n-th watched system call,
// counted over all its threads; 0 lets it live. It returns how many there were, and the
// name of the last one.
//
// One counter over all threads: `strace -e inject` counts for each thread and call
// apart, and reaches a third of the places.
func traced(t victimTask, stderr string, n int) (c *child, ws unix.WaitStatus, count int, last string, err error) {
	// The kernel knows the tracer by its thread, and that thread's children by it.
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	t.Traced = true
	if c, err = start(task{Victim: &t}, stderr, &syscall.SysProcAttr{Ptrace: true}); err != nil {
		return nil, 0, 0, "", err
	}
	hung := c.limit()
	ws, count, last, err = follow(c, n)
	if err != nil {
		c.kill()
	}
	if hung() {
		err = errors.Join(err, fmt.Errorf("the victim hung after %d system calls", count))
	}
	return c, ws, count, last, err
}

func follow(c *child, n int) (ws unix.WaitStatus, count int, last string, err error) {
	const (
		options = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_EXITKILL
		anyone  = unix.WALL | unix.WNOTHREAD
	)
	pid, begun := c.pid, false
	for {
		tid, err := unix.Wait4(-1, &ws, anyone, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return ws, count, last, fmt.Errorf("wait for the victim: %w", err)
		case ws.Exited() || ws.Signaled():
			if tid == pid {
				c.ended()
				return ws, count, last, nil
			}
			continue
		case !ws.Stopped():
			continue
		}
		deliver := 0
		switch sig := ws.StopSignal(); {
		case !begun:
			// The stop at exec. Before the filter is installed nothing is counted.
			if err := unix.PtraceSetOptions(pid, options); err != nil {
				return ws, count, last, fmt.Errorf("trace the victim: %w", err)
			}
			begun = true
		case sig == unix.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
			name, counts, err := describe(tid)
			if err != nil {
				return ws, count, last, err
			}
			if !counts {
				break
			}
			count, last = count+1, name
			if count == n {
				// The thread stays stopped before its call, and never makes it.
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					return ws, count, last, err
				}
				continue
			}
		case sig == unix.SIGTRAP, sig == unix.SIGSTOP:
			// A new thread, or the tracer's own business.
		default:
			deliver = int(sig) // the Go runtime preempts with signals
		}
		if err := unix.PtraceCont(tid, deliver); err != nil && !errors.Is(err, unix.ESRCH) {
			return ws, count, last, fmt.Errorf("continue thread %d: %w", tid, err)
		}
	}
}

// describe names the system call before which a thread stopped, and says whether it
// counts. Three do not, for how many there are of them depends on the moment: a write to
// an event descriptor wakes the Go runtime and nobody else; one of no bytes, which Pebble's
// log makes where its flusher wakes between two blocks, changes nothing; and the watermark is
// synced by the clock, which is nothing to a process that is killed.
func describe(tid int) (name string, counts bool, err error) {
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return "", false, fmt.Errorf("system call of thread %d: %w", tid, errno)
	}
	name = syscallNames[uint32(info.Nr)]
	if info.Nr != unix.SYS_WRITE && info.Nr != unix.SYS_FDATASYNC {
		return name, true, nil
	}
	to, err := os.Readlink("/proc/" + strconv.Itoa(tid) + "/fd/" + strconv.FormatUint(info.Args[0], 10))
	if err != nil {
		return name, false, err
	}
	if info.Nr == unix.SYS_FDATASYNC {
		return name, filepath.Base(to) != "WATERMARK", nil
	}
	return name, info.Args[2] > 0 && !strings.HasPrefix(to, "anon_inode:"), nil
}

var syscallNames = map[uint32]string{
	unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "pwrite64", unix.SYS_WRITEV: "writev", unix.SYS_PWRITEV: "pwritev",
	unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_SYNC_FILE_RANGE: "sync_file_range",
	unix.SYS_FALLOCATE: "fallocate", unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_OPENAT: "openat",
	unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2", unix.SYS_UNLINKAT: "unlinkat",
	unix.SYS_LINKAT: "linkat", unix.SYS_MKDIRAT: "mkdirat",
	unix.SYS_CONNECT: "connect", unix.SYS_SENDTO: "sendto", unix.SYS_SENDMSG: "sendmsg",
}
