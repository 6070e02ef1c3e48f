package proc

import (
	"fmt"
	goruntime "runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// watched are the system calls by which a process changes a disk or speaks to another
// process. Each is reported to the tracer before it happens.
var watched = []uint32{
	unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_PWRITEV,
	unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNC_FILE_RANGE, unix.SYS_FALLOCATE, unix.SYS_FTRUNCATE,
	unix.SYS_OPENAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT, unix.SYS_LINKAT, unix.SYS_MKDIRAT,
	unix.SYS_CONNECT, unix.SYS_SENDTO, unix.SYS_SENDMSG,
}

// installFilter makes the kernel stop every thread of this process, now and later,
// before a watched system call, and tell the tracer. Without one they fail.
//
// A filter costs nothing for the other calls, of which the Go runtime makes many more;
// a tracer that stops at each system call makes a life several times longer.
func installFilter() error {
	prog := []unix.SockFilter{load(offsetOfNumber)}
	for _, nr := range watched {
		if nr == unix.SYS_OPENAT {
			// Most opens only read: one that may create has O_CREAT in its third argument.
			prog = append(prog,
				jumpIfEqual(nr, 0, 4),
				load(offsetOfArg(2)),
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.O_CREAT, Jt: 0, Jf: 1},
				give(unix.SECCOMP_RET_TRACE),
				give(unix.SECCOMP_RET_ALLOW),
			)
			continue
		}
		prog = append(prog, jumpIfEqual(nr, 0, 1), give(unix.SECCOMP_RET_TRACE))
	}
	prog = append(prog, give(unix.SECCOMP_RET_ALLOW))

	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog))); errno != 0 {
		return fmt.Errorf("system call filter: %w", errno)
	}
	return nil
}

// struct seccomp_data: int nr; __u32 arch; __u64 instruction_pointer; __u64 args[6].
// The machines here are little-endian, so the low half of an argument comes first.
const offsetOfNumber = 0

func offsetOfArg(i uint32) uint32 { return 16 + 8*i }

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func jumpIfEqual(k uint32, t, f uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: t, Jf: f}
}

func give(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
}
