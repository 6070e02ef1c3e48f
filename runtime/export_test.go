package runtime

// Remembered returns how many traces and timers a Runtime remembers something about, in memory alone.
func (rt *Runtime) Remembered() (givenUp, rests int) {
	rt.executors.givenUp.Range(func(any, any) bool { givenUp++; return true })
	rt.timers.mu.Lock()
	defer rt.timers.mu.Unlock()
	return givenUp, len(rt.timers.rests)
}
