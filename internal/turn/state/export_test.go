package state

import "github.com/tgad/tgad/keyspace"

// ShareLists puts all keys of a scope into one list, as if their digests began alike.
func ShareLists(s *Space) { s.slot = func(string) uint64 { return keyspace.ListBit<<56 | 1 } }

// PickBy makes the choices of collections repeatable.
func PickBy(s *Space, pick func(n int) int) { s.pick = pick }

// Scopes counts the scopes in memory.
func Scopes(s *Space) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.scopes)
}

// Level returns a transaction's level.
func Level(t *Tx) Isolation { return t.level }

// OpenTransactions counts the transactions of a scope that are held in memory.
func OpenTransactions(t *Tx) int {
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	return len(t.scope.open)
}
