package engine

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/filelock"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// A directory that was copied, or rolled back to an earlier snapshot, is consistent in itself.
// Only something outside it can show that it is not the newest. The witness is a file outside
// the directory. It names the token that the store drew when it was last opened.
//
// An open takes three durable writes, in this order:
//
//  1. the witness: {last: the token that the store has, next: a new one}
//  2. the store: the new token, in the batch that raises its incarnation
//  3. the witness: {last: the new token}
//
// Open returns after the third write, so nothing is appended before it. A crash before write 2
// leaves the store with `last`, and a crash before write 3 leaves it with `next`. The witness has
// both, so the next open continues without any repair. After write 3 only the new token is
// accepted: a directory from before this open has an older token, and a copy that was opened
// elsewhere has drawn another one.
//
// A close does the same three writes, so that a copy made while the store was open has an older
// token too.
//
// Not detected: a roll-back of a store that was not closed to a moment after its last open.

// witness is the content of the file, one line of JSON.
type witness struct {
	Format string        `json:"format"` // witnessFormat
	Store  string        `json:"store"`
	Last   witnessToken  `json:"last"`
	Next   *witnessToken `json:"next,omitempty"` // set while an open is under way: the store has this token or Last
}

const witnessFormat = "tgad.witness." + tga.WitnessVersion

// witnessToken is the token that a store drew when it was opened.
type witnessToken struct {
	Incarnation uint64 `json:"incarnation"`
	Token       string `json:"token"` // hex; "" before the store had a witness
}

// mostWitness is the most bytes that are read of the file.
const mostWitness = 4096

// readWitness reads the file of a witness. It returns nil if there is no file.
func readWitness(fs vfs.FS, path string) (*witness, error) {
	f, err := fs.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "witness %s: %w", path, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, mostWitness))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "witness %s: %w", path, err)
	}
	var w witness
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil || w.Format != witnessFormat {
		return nil, damaged("witness %s: it is no witness of a store (%v)", path, err)
	}
	return &w, nil
}

// witnessAt returns the path of a witness, at the end of its links. By a link it may lie on another disk, where
// it must stay when its file is replaced.
func witnessAt(fs vfs.FS, path string) (string, error) {
	if vfs.Root(fs) != vfs.Default {
		return path, nil
	}
	to, err := access.Target(path)
	if err != nil {
		return path, tga.Errorf(tga.StoreUnavailable, "witness %s: %w", path, err)
	}
	return to, nil
}

// write replaces the file: after a crash it is the old one or the new one.
func (w witness) write(fs vfs.FS, path string) error {
	w.Format = witnessFormat
	fail := func(err error) error { return tga.Errorf(tga.StoreUnavailable, "witness %s: %w", path, err) }
	b, err := json.Marshal(w)
	if err != nil {
		return fail(err)
	}
	temp := path + ".new"
	f, err := fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fail(err)
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fail(err)
	}
	if err := errors.Join(fs.Rename(temp, path), syncDir(fs, fs.PathDir(path))); err != nil {
		return fail(err)
	}
	return nil
}

// vantage is the witness of a store: the path of its file, "" if the store has no witness.
type vantage struct {
	dir  string // of the store
	path string
	opts *Options
}

func (s site) witness() vantage { return vantage{s.dir, s.opts.WitnessFile, s.opts} }

func (s *standing) witness() vantage { return vantage{s.dir, s.opts.WitnessFile, &s.opts} }

// lock keeps a second store from using the same witness, for example a copy of this store while
// this store is open.
func (v vantage) lock(dir *dirLock) error {
	path := v.path
	if path == "" || dir == nil {
		return nil
	}
	at, err := filepath.Abs(path)
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "witness %s: %w", path, err)
	}
	if above, err := filepath.EvalSymlinks(filepath.Dir(at)); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "witness %s: %w: is its disk mounted?", path, err)
	} else if in, err := filepath.Rel(v.dir, above); err == nil && in != ".." && !strings.HasPrefix(in, "../") {
		return tga.Errorf(tga.ValidationError, "witness %s: it is in the store's own directory and would be copied and rolled back with it", path)
	}
	f, err := filelock.Lock(path + ".lock")
	if errors.Is(err, filelock.ErrHeld) {
		return tga.Errorf(tga.StateLockAcquireFailed, "witness %s: a store with this witness is open: %w", path, err)
	}
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "witness %s: %w", path, err)
	}
	dir.witness = f
	return nil
}

// ofNone refuses to make a new store if the witness knows a store.
func (v vantage) ofNone(dir string) error {
	if v.path == "" {
		return nil
	}
	w, err := readWitness(v.opts.FS, v.path)
	if err != nil || w == nil {
		return err
	}
	return tga.Errorf(tga.NotFound, "open %s: there is no store, and the witness %s knows store %s: is its disk mounted? Remove the witness to begin with a new store",
		dir, v.path, w.Store)
}

// testify does the first of the three writes of an open. It returns the token for the second
// write. If believe is set, the operator says that the store is the newest, and testify does not
// check the witness.
func (v vantage) testify(x *index, store tga.ID, incarnation uint64, believe bool) (next witnessToken, err error) {
	path := v.path
	if path == "" {
		return next, nil
	}
	token, err := x.meta(metaToken)
	if err != nil {
		return next, err
	}
	stored, err := x.metaNumber(metaIncarnation)
	if err != nil {
		return next, err
	}
	has := witnessToken{stored, hex.EncodeToString(token)}
	if !believe {
		w, err := readWitness(v.opts.FS, path)
		if err != nil {
			return next, err
		}
		if err := v.contradicts(w, store, has); err != nil {
			return next, err
		}
	}
	var drawn [16]byte
	if err := v.opts.random(drawn[:]); err != nil {
		return next, err
	}
	next = witnessToken{incarnation, hex.EncodeToString(drawn[:])}
	return next, witness{Store: store.String(), Last: has, Next: &next}.write(v.opts.FS, path)
}

// contradicts returns why a store with that token is not the store that the witness saw last,
// nil if it is.
func (v vantage) contradicts(w *witness, store tga.ID, has witnessToken) error {
	path := v.path
	dir, file := clip.ShellWord(v.dir), clip.ShellWord(path) // quoted, because a person is to type them
	const ways = "If this directory is the newest there is: tgad init --data %s --witness %s. If it is an older one: tgad restore %s makes a store of it that sends nothing twice"
	switch {
	case w == nil && has.Token == "":
		return nil // the first open with a witness
	case w == nil:
		return tga.Errorf(tga.StoreUnavailable, "open %s: its witness %s is missing: is its disk mounted? "+ways, v.dir, path, dir, file, dir)
	case w.Store != store.String():
		return tga.Errorf(tga.StateChecksumMismatch, "open %s: its witness %s is of store %s, this is %s. "+ways, v.dir, path, w.Store, store, dir, file, dir)
	case has.Token == w.Last.Token, w.Next != nil && has.Token == w.Next.Token:
		return nil
	}
	what := "it is a copy that went another way"
	if has.Incarnation < w.Last.Incarnation {
		what = "it was copied or rolled back to an earlier time"
	}
	return tga.Errorf(tga.StateChecksumMismatch, "open %s: %s: it was opened %d times, its witness %s saw %d. "+ways,
		v.dir, what, has.Incarnation, path, w.Last.Incarnation, dir, file, dir)
}

// leave draws a token at a close. If it fails, the store is in the same state as after a crash.
func (o *opened) leave() error {
	s := o.of
	v := s.witness()
	if v.path == "" || o.readOnly || s.health.sick() != nil {
		return nil
	}
	_, incarnation := s.leases.granted()
	next, err := v.testify(o.index, s.storeID, uint64(incarnation), false)
	if err != nil {
		return err
	}
	w := o.commits.newWriter()
	w.setToken(next)
	if err := o.commits.apply(w); err != nil {
		return err
	}
	return v.attest(s.storeID, next)
}

// setToken does the second write: the token. Without a witness it writes nothing.
func (w *writer) setToken(next witnessToken) {
	if token, err := hex.DecodeString(next.Token); err == nil && len(token) > 0 {
		w.set(keyspace.AppendMeta(nil, metaToken), token)
	}
}

// attest does the third write.
func (v vantage) attest(store tga.ID, next witnessToken) error {
	if next.Token == "" {
		return nil
	}
	return witness{Store: store.String(), Last: next}.write(v.opts.FS, v.path)
}

// Witness makes opts.WitnessFile the witness of the store in dir, whatever the file had before.
// By calling it the operator asserts that this directory is the newest state of the store. No
// process may have the store open.
func Witness(dir string, opts Options) error {
	if opts.WitnessFile == "" {
		return tga.Errorf(tga.ValidationError, "witness: no file is named")
	}
	opts.Create = false
	db, err := open(dir, opts, openMode{believe: true})
	if err != nil {
		return err
	}
	if db.doubt != nil {
		return errors.Join(tga.Errorf(tga.StoreUnavailable, "witness of %s: %w", dir, error(db.doubt)), db.Close())
	}
	return db.Close()
}
