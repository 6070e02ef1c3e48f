package runtime

// Resting returns how many timers a Runtime remembers something about, in memory alone.
func (rt *Runtime) Resting() int {
	rt.timers.mu.Lock()
	defer rt.timers.mu.Unlock()
	return len(rt.timers.rests)
}
