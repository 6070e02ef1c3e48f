package postgres

// SpendEpochs leaves the session of a store as if it had granted almost all its leases.
func SpendEpochs(s *Store) {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	s.session.counter = lastEpochs - 1
}

// BeforeErasing has f told before each step of an erasure; its error ends it there.
func BeforeErasing(s *Store, f func(step string) error) { s.erasure.step = f }
