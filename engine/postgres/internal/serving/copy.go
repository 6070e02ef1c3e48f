package serving

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/schemas/tga"
)

// moved is the reason for which a copied store is frozen.
const moved = "it was copied into a database, and is served from there"

// copyStore copies a store from a directory. It has the store open meanwhile, so no other process can use it.
func copyStore(ctx context.Context, c cli.Copying) (done cli.Copied, err error) {
	ring, err := ringOf(c.Config)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, ring.Close()) }()
	db, err := openSource(c, ring)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s := db.Stats()
	switch {
	case s.Frozen != "" && !strings.Contains(s.Frozen, moved):
		return done, tga.Errorf(tga.StoreUnavailable, "copy: the store in %s is frozen, and a copy would not be: %s", c.From, s.Frozen)
	case s.Quarantine != nil:
		return done, tga.Errorf(tga.StoreUnavailable, "copy: the store in %s is in quarantine, and a copy would not be: end that first", c.From)
	}
	kept, err := evidence.Kept(c.From, nil)
	if err != nil {
		return done, err
	}
	var notes []postgres.Keeping
	for _, k := range kept {
		notes = append(notes, postgres.Keeping{Kind: k.Kind, Size: k.Size, Note: k.Note, Key: k.Key})
	}
	duties, err := keptIn(c.From)
	if err != nil {
		return done, err
	}
	to := optionsOf(c.Config, slog.New(slog.DiscardHandler))
	ring.to(&to)
	got, err := postgres.Copy(ctx, c.To, to, postgres.Copying{
		Source: db, ID: s.StoreID, Incarnation: s.Incarnation, Progress: c.Progress, Left: s.Frozen != "",
		Evidence: notes, Kept: duties, Compare: sameEvidence, Leave: func() error { return db.Freeze(moved) },
	})
	return cli.Copied{Store: s.StoreID.String(), Appends: got.Appends, Traces: got.Traces, Entries: got.Entries, Notes: got.Notes, Records: got.Records}, err
}

// openSource opens the store that is copied. A store that is not sealed is opened without the ring, because an open with a ring would
// make it a sealed store.
func openSource(c cli.Copying, ring ringed) (*engine.DB, error) {
	if is, err := engine.IsStore(c.From); err != nil {
		return nil, &cli.Unopened{Err: err}
	} else if !is { // the open would make one
		return nil, tga.Errorf(tga.NotFound, "copy: there is no store in %s", c.From)
	}
	o := engine.Options{WitnessFile: c.Config.Path(c.Config.Store.WitnessFile)}
	db, err := engine.Open(c.From, o)
	if err != nil {
		return nil, &cli.Unopened{Err: err}
	}
	if under, _ := db.SealedUnder(); under.IsZero() || ring.Ring == nil {
		return db, nil
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	o.Keyring = ring.Ring
	if db, err = engine.Open(c.From, o); err != nil {
		return nil, &cli.Unopened{Err: err}
	}
	return db, nil
}

// keptIn reads the kept state of the duties of a store in a directory. Each duty has a file.
func keptIn(dir string) (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, of := range []string{assemble.AuditDuty, assemble.NotifyDuty} {
		list, err := os.ReadDir(filepath.Join(dir, of))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		for _, f := range list {
			if filepath.Ext(f.Name()) != "" {
				continue // left by a crash while the file was replaced; an id has no dot
			}
			var raw []byte
			if raw, err = os.ReadFile(filepath.Join(dir, of, f.Name())); err != nil {
				break
			}
			all[of+f.Name()] = raw
		}
		if err != nil {
			return nil, tga.Errorf(tga.StoreUnavailable, "copy: %w", err)
		}
	}
	return all, nil
}

// sameEvidence checks that a copy agrees with the signed notes of its source.
func sameEvidence(ctx context.Context, s *postgres.Store) error {
	var first error
	err := evidence.CheckTables(ctx, tables{s.Fleet().Evidence()}, func(found error) {
		if first == nil {
			first = found
		}
	})
	if err == nil && first != nil {
		err = tga.Errorf(tga.StateChecksumMismatch, "the copy is not what was signed of the source: %w", first)
	}
	return err
}
