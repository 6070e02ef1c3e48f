package killtest

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// tick is a hundredth of a second: USER_HZ, which Linux has the same on every machine of today.
const tick = 10 * time.Millisecond

// The fields of /proc/PID/stat after the name: state is the first of them (proc(5)).
const (
	parentField = 1
	userField   = 11 // and the next three: system, and those of the children that were waited for
	fields      = 15
)

// spent sums up the processor time so far of processes and all their descendants. The time of a descendant that has
// ended is in its parent's account. A process that ends during the call is left out; no process of an engine does that.
func spent(roots ...int) (all time.Duration) {
	dir, err := os.ReadDir("/proc")
	if err != nil {
		return all
	}
	parents, cpu := map[int]int{}, map[int]time.Duration{}
	for _, e := range dir {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		rest := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // the name may hold anything
		if err != nil || len(rest) < fields {
			continue
		}
		parents[pid] = number(rest[parentField])
		for _, f := range rest[userField:fields] {
			cpu[pid] += time.Duration(number(f)) * tick
		}
	}
	for pid := range parents {
		if descends(pid, parents, roots) {
			all += cpu[pid]
		}
	}
	return all
}

func descends(pid int, parents map[int]int, roots []int) bool {
	for n := 0; pid > 1 && n < len(parents); n++ { // so that no loop of reused ids goes on for ever
		for _, root := range roots {
			if pid == root {
				return true
			}
		}
		pid = parents[pid]
	}
	return false
}

// number returns 0 for a text that is no number. The kernel writes only numbers there.
func number(b []byte) int {
	n, err := strconv.Atoi(string(b))
	if err != nil {
		return 0
	}
	return n
}
