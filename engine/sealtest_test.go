package engine_test

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/sealrules/sealtest"
	"github.com/tgad/tgad/wal/chain"
)

func TestSealedStore(t *testing.T) {
	sealtest.Run(t, func(t *testing.T) sealtest.Harness {
		fs := vfs.NewMem()
		return sealtest.Harness{
			Open: func(ring chain.Keyring) (sealtest.Store, error) {
				o := options(fs)
				o.Keyring = ring
				db, err := engine.Open("store", o)
				if err != nil {
					return nil, err
				}
				return db, nil
			},
			Has: func(text string) []string { return filesWith(t, fs, "store", text) },
			Check: func(s sealtest.Store) {
				rep, err := s.(*engine.DB).Check(context.Background())
				if err != nil || len(rep.Problems) > 0 {
					t.Errorf("check: %+v, %v", rep, err)
				}
			},
		}
	})
}
