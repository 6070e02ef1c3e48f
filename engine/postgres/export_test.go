package postgres

// BeforeErasing has f told before each step of an erasure; its error ends it there.
func BeforeErasing(s *Store, f func(step string) error) { s.erasure.step = f }
