// Package storetest has the suite that every [runtime.Store] must pass, and makes the
// valid traces that the suite uses.
//
// Each subtest is named after one claim. A store that passes them all keeps the
// contract of the runtime: its answers are durable, a refused append leaves no trace,
// each key is reserved once, and an append under a lost lease is refused.
package storetest

import (
	"context"
	"testing"

	"github.com/tgad/tgad/runtime"
)

// Harness is one store under test.
type Harness struct {
	Store runtime.Store
	// Reopen ends the store like the end of a process, and opens it again: what was durable
	// is there, and nobody holds a lease. Nil skips the claims about reopening.
	Reopen func() runtime.Store
	Close  func()
}

// Run runs the suite. open gives each subtest an empty store of its own.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for _, claims := range [][]claim{appendClaims, orderClaims, leaseClaims, ledgerClaims, servedClaims, noteClaims, alsoClaims, awaitClaims, stateClaims, reopenClaims} {
		for _, c := range claims {
			t.Run(c.name, func(t *testing.T) {
				h := open(t)
				if h.Close != nil {
					t.Cleanup(h.Close)
				}
				w := newWorld(t, h)
				c.test(w)
				w.recordsAreFolds()
			})
		}
	}
}

type claim struct {
	name string
	test func(w *world)
}

var bg = context.Background()
