// Package evidence lets a program that embeds a store of package engine prove to others what the
// store had. The daemon does the same for its store. A program that does not import this package
// links nothing of it.
//
// A [Keeper] follows the log of the store, and no append waits for it. It signs checkpoints of a
// Merkle tree over all appends, hands them to places outside of the store, and gives receipts:
//
//	db, err := engine.Open(dir, engine.Options{})
//	k, err := evidence.Open(ctx, db, dir, keyFile, evidence.Options{Files: []string{"/mnt/other/checkpoint"}})
//	rt, err := runtime.New(db, tools, supervisor, runtime.Options{Receipt: k.Receipt})
//
// Open the keeper before the runtime, and close it before the store. docs/EVIDENCE.md says who can
// prove what to whom with it, and docs/FORMAT.md §11 what the bytes are.
//
// # Invariants
//
//	before     a store that was rolled back is frozen before Open returns   [Open]          TestRolledBackStoreIsFrozen
//	last       the last checkpoint covers all appends before Close          [Keeper.Close]  TestCloseCoversEverything
//	proved     the programs of an auditor verify what is exported           [Keeper.Export] TestExportVerifies
package evidence

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"sync"
	"time"

	fnote "github.com/transparency-dev/formats/note"

	"github.com/tgad/tgad/engine"
	keeping "github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Options say where checkpoints go. Without Files and Witnesses, whoever can write to the store can
// still roll it back together with its checkpoints, and nobody can tell.
type Options struct {
	Origin string // names the store in its checkpoints; "" = the name of the key
	// FormerKeyFile is the key that signed before. It hands over to the key that signs now.
	FormerKeyFile string
	// Files are files outside of the store, best on other disks. Each gets the newest checkpoint.
	Files []string
	// Witnesses remember the newest checkpoint and sign a newer one only if the store grew from it.
	Witnesses []Witness
	Every     time.Duration // between checkpoints of a store that grows; 0 = 10 s
	Logger    *slog.Logger  // nil = none
}

// Witness is a witness of C2SP tlog-witness.
type Witness struct {
	URL string // requests go to URL/add-checkpoint
	Key string // public, with which it cosigns
}

// Keeper keeps the evidence of one open store. Its methods may be called from any number of
// goroutines.
type Keeper struct {
	db    *engine.DB
	k     *keeping.Keeper
	close func() error // does it once
}

// kept has the store of each open keeper: two keepers would write over each other's notes. Another
// process cannot have the store open.
var kept sync.Map // *engine.DB → nothing

// NewKey makes a key that signs checkpoints, in a new file with mode 0600, and returns its public
// part, with which others check what it signed. name is the origin of the store, such as
// "payments.example/tgad". Keep the file outside of the store and of its backups.
func NewKey(name, file string) (public string, err error) {
	secret, public, err := checkpoint.NewKey(name)
	if err != nil {
		return "", err
	}
	return public, checkpoint.CreateKeyFile(file, secret)
}

// Open opens the evidence of the store in a directory, which is open as db. It compares the store with
// the newest checkpoint that the store kept, and with that of every place in the options. A store that
// has fewer appends than were signed, or other ones, is frozen when Open returns ([engine.DB.Stats]
// says why): it can be read, and takes no append, until the program calls [Keeper.Accept]. A place
// that does not answer within ten seconds is asked again later. ctx is for the opening alone.
//
// VALIDATION_ERROR: the key or a file is inside the store, the key is no key, or the origin has a line end or
// another control character. PERMISSION_DENIED: another key signed before. STATE_CHECKSUM_MISMATCH: the kept
// checkpoints are damaged. STATE_LOCK_ACQUIRE_FAILED: the store has a keeper that was not closed.
func Open(ctx context.Context, db *engine.DB, dir, keyFile string, o Options) (*Keeper, error) {
	in := keeping.Options{Origin: o.Origin, Every: o.Every, Logger: o.Logger}
	var err error
	if in.Signer, err = keeping.ReadSigner(keyFile, dir); err != nil {
		return nil, err
	}
	if o.FormerKeyFile != "" {
		former, err := keeping.ReadSigner(o.FormerKeyFile, dir)
		if err != nil {
			return nil, err
		}
		in.Former = &former
	}
	for _, path := range o.Files {
		place, err := keeping.FilePlace(path, dir)
		if err != nil {
			return nil, err
		}
		in.Places = append(in.Places, place)
	}
	for _, w := range o.Witnesses {
		key, err := fnote.NewVerifierForCosignatureV1(w.Key)
		if err != nil {
			return nil, tga.Errorf(tga.ValidationError, "evidence: the key of witness %s: %w", w.URL, err)
		}
		in.Places = append(in.Places, &checkpoint.Witness{URL: w.URL, Key: key})
		in.Witnesses = append(in.Witnesses, key)
	}
	if _, taken := kept.LoadOrStore(db, nil); taken {
		return nil, tga.Errorf(tga.StateLockAcquireFailed, "evidence: the store has a keeper already: close it first")
	}
	k, ended := &Keeper{db: db}, make(chan struct{})
	if k.k, err = keeping.Open(ctx, db, dir, in); err != nil {
		kept.Delete(db)
		return nil, err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(ended)
		k.k.Run(life)
	}()
	k.close = sync.OnceValue(func() error {
		defer kept.Delete(db)
		end()
		<-ended
		return k.k.Close()
	})
	return k, nil
}

// Receipt returns the receipt of a trace, for runtime.Options.Receipt. NOT_FOUND: there is no such
// trace.
func (k *Keeper) Receipt(ctx context.Context, trace tga.ID) (runtime.Receipt, error) {
	r, err := k.k.Receipt(ctx, trace)
	if err != nil {
		return runtime.Receipt{}, err
	}
	return r.Plain(), nil
}

// Checkpoint returns the newest signed checkpoint, "" if there is none yet.
func (k *Keeper) Checkpoint() string {
	raw, _ := k.k.Newest()
	return string(raw)
}

// Export writes an evidence file of traces, or of every append if none is named, as far as the newest
// checkpoint covers them. VALIDATION_ERROR: the checkpoint covers none of them yet.
func (k *Keeper) Export(ctx context.Context, w io.Writer, traces ...tga.ID) error {
	return k.k.Export(ctx, w, keeping.Wanted{Traces: traces}, func(w io.Writer, ids []tga.ID) error {
		for _, id := range ids {
			// Read the notes first. A note that is appended between the two reads is then missing, but
			// no note is there without the entry that it names.
			t, err := k.db.Load(ctx, id)
			if err == nil {
				err = ndjson.Write(w, id, k.db.Entries(ctx, id, 0), notes(t))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func notes(t *chain.Trace) iter.Seq2[tga.Note, error] {
	return func(yield func(tga.Note, error) bool) {
		for _, n := range t.Notes {
			if !yield(n, nil) {
				return
			}
		}
	}
}

// Accept records that a person, who, lets a store continue although a signed checkpoint has more
// appends, or other ones. The acceptance is signed and kept, and does not freeze the store again.
func (k *Keeper) Accept(ctx context.Context, who string) error {
	if err := k.db.Unfreeze(ctx, true, who); err != nil {
		return err
	}
	return k.k.Accept(who) // if the process dies before this, the next open freezes the store again
}

// Close signs a last checkpoint of all appends, hands it to the places, and ends the keeper. Call it
// before the Close of the store. A second Close does nothing more.
func (k *Keeper) Close() error {
	if err := k.close(); err != nil {
		return errors.Join(tga.Errorf(tga.StoreUnavailable, "evidence: the last checkpoint may be missing"), err)
	}
	return nil
}
