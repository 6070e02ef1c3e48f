package evidence

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/diskfs"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/schemas/tga"
)

// keyName is the file with the public key that signed first, in the text form of signed-note. It is for
// programs that read the store without its configuration. It need not be trusted: an auditor brings the key.
const keyName = "key"

// writeKey writes the public key that signed first into the store's directory.
func (k *Keeper) writeKey(dir string) error {
	fs := k.opts.FS
	name, line := fs.PathJoin(dir, keyName), k.first+"\n"
	if have, err := readAll(fs, name); err == nil && string(have) == line {
		return nil
	}
	if err := checkpoint.Replace(fs, name, []byte(line)); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "evidence: the public key: %w", err)
	}
	return nil
}

// Read opens the evidence of a store that is open for reading, from the log and the kept checkpoints.
// Receipts and evidence files cover the log as far as the newest kept checkpoint. Read writes nothing,
// asks no place outside, and makes the tree from the log, in memory. The keeper needs no Close. A nil fs
// is the operating system's.
//
// NOT_FOUND: no checkpoint of the store is kept. STATE_CHECKSUM_MISMATCH: the log is not what the
// newest one covers, or the kept ones are damaged.
func Read(ctx context.Context, store Store, dir string, fs vfs.FS) (*Keeper, error) {
	fs = cmp.Or(fs, diskfs.OS())
	kept := fs.PathJoin(dir, tree.Dir)
	key, err := readAll(fs, fs.PathJoin(kept, keyName))
	var notes []byte
	if err == nil {
		notes, err = readAll(fs, fs.PathJoin(kept, checkpoint.FileName))
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, tga.Errorf(tga.NotFound, "%s keeps no checkpoints, or does not say which key signed them: a daemon with an [evidence] key_file makes both", dir)
	}
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "evidence: %w", err)
	}
	v, err := note.NewVerifier(strings.TrimSpace(string(key)))
	if err != nil {
		return nil, tga.Errorf(tga.StateChecksumMismatch, "evidence: the file %s is no public key: %w", fs.PathJoin(kept, keyName), err)
	}
	mem := vfs.NewMem()
	k := &Keeper{store: store, log: slog.New(slog.DiscardHandler), grown: make(chan struct{})}
	k.opts = Options{FS: mem, Origin: v.Name(), Signer: checkpoint.Signer{Public: strings.TrimSpace(string(key))}, Logger: k.log}
	if k.file, err = copied(mem, kept, notes); err != nil {
		return nil, err
	}
	if k.file.Newest() == nil {
		return nil, tga.Errorf(tga.NotFound, "%s keeps no checkpoint: the first is made when something was appended", dir)
	}
	if c, err := checkpoint.Unverified(k.file.Newest()); err == nil {
		k.opts.Origin = c.Origin
	}
	if k.tree, err = tree.Open(mem, dir, store.Stats().StoreID, func(int64) (tlog.Hash, error) { return tlog.Hash{}, nil }); err != nil {
		return nil, err
	}
	if err := k.follow(ctx); err != nil {
		return nil, err
	}
	if err := k.readKept(); err != nil {
		return nil, err
	}
	if k.first != k.opts.Signer.Public {
		return nil, tga.Errorf(tga.PermissionDenied, "evidence: %s names key %s, and the kept hand-overs begin with %s", fs.PathJoin(kept, keyName), k.opts.Signer.Public, k.first)
	}
	c, _, err := k.trusted().Open(k.newest)
	if err != nil {
		return nil, err
	}
	why, err := k.compare(ctx, c)
	if err == nil && why != "" {
		err = tga.Errorf(tga.StateChecksumMismatch, "evidence of %s, the newest checkpoint that the store kept: %s", k.opts.Origin, why)
	}
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Verify compares the evidence that a store in a directory keeps with its log: the newest checkpoint and the file of the tree. It
// also checks who signed the hand-overs and acceptances. It writes nothing. nil: they agree, or no evidence is kept.
//
// The errors are those of [Read], and STATE_CHECKSUM_MISMATCH for a tree that is not the log's.
func Verify(ctx context.Context, store Store, dir string) error {
	k, err := Read(ctx, store, dir, nil)
	if tga.CodeOf(err) == tga.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return tree.Compare(diskfs.OS(), dir, store.Stats().StoreID, k.tree.(*tree.Tree))
}

// Kept returns the notes that a store in a directory kept, so that they can be copied into tables. They are in order, oldest first;
// the first one has the public key that signed first. If nothing was signed, there are none. A nil fs is the operating system's.
//
// PERMISSION_DENIED: a note was not signed by that key, or by one that it handed over to.
func Kept(dir string, fs vfs.FS) (list []Keeping, err error) {
	fs = cmp.Or(fs, diskfs.OS())
	kept := fs.PathJoin(dir, tree.Dir)
	key, err := readAll(fs, fs.PathJoin(kept, keyName))
	var raw []byte
	if err == nil {
		raw, err = readAll(fs, fs.PathJoin(kept, checkpoint.FileName))
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "evidence: %w", err)
	}
	file, err := copied(vfs.NewMem(), kept, raw)
	if err != nil || file.Newest() == nil {
		return nil, err
	}
	c, err := checkpoint.Unverified(file.Newest())
	if err != nil {
		return nil, err
	}
	first := strings.TrimSpace(string(key))
	keys, err := checkpoint.TrustKeys(c.Origin, first)
	if err != nil {
		return nil, err
	}
	for raw, err := range file.All() {
		if err != nil {
			return nil, err
		}
		n := Keeping{Kind: kindOf(raw), Note: bytes.Clone(raw)}
		var a checkpoint.Acceptance
		switch n.Kind {
		case KindHandOver:
			c, err = keys.Follow(raw)
		case KindAcceptance:
			a, err = keys.OpenAcceptance(raw)
			c.Size = a.Size
		default:
			c, _, err = keys.Open(raw)
		}
		if err != nil {
			return nil, err
		}
		if n.Size = c.Size; len(list) == 0 {
			n.Key = first
		}
		list = append(list, n)
	}
	return list, nil
}

// copied opens a copy of the kept notes in memory. To open the file itself could create it, or drop a torn end.
func copied(mem *vfs.MemFS, dir string, notes []byte) (*checkpoint.File, error) {
	err := mem.MkdirAll(dir, access.DirMode)
	var f vfs.File
	if err == nil {
		f, err = mem.Create(mem.PathJoin(dir, checkpoint.FileName), vfs.WriteCategoryUnspecified)
	}
	if err == nil {
		_, err = f.Write(notes)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "evidence: %w", err)
	}
	return checkpoint.OpenFile(mem, dir)
}

func readAll(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(f)
	return raw, errors.Join(err, f.Close())
}
