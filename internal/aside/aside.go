// Package aside manages what a store's directory has beside the store: snapshots of the directories and databases of
// working states. An erasure of a state erases its snapshots too. They are removed after the state, so a refused erasure
// leaves them. Snapshots that a crash left are removed before the store is used again ([ForgetErased]).
package aside

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Dir returns the directory of the snapshots of a working state, within a store's directory.
func Dir(data string, state tga.ID) string { return filepath.Join(all(data), state.String()) }

func all(data string) string { return filepath.Join(data, "workspaces") }

// Forget wipes and removes the snapshots of working states that were erased. No process has the states open, because only
// a process that has the store open can open a state. STORE_UNAVAILABLE: some snapshots are still there.
func Forget(data string, states []tga.ID) error {
	if data == "" {
		return nil
	}
	for _, id := range states {
		dir := Dir(data, id)
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			return wipe(path)
		})
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = errors.Join(os.RemoveAll(dir), access.SyncDir(all(data)))
		}
		if err != nil {
			return tga.Errorf(tga.StoreUnavailable, "the working state %s is erased, its snapshots in %s are not. Erase it again: %w", id, dir, err)
		}
	}
	return nil
}

// Store is a store that can tell which working states were erased.
type Store interface {
	Attachments(ctx context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error]
}

// ForgetErased calls [Forget] for each state that was erased and not begun anew. A crash after an erasure may have left
// their snapshots.
func ForgetErased(ctx context.Context, s Store, data string) error {
	dirs, err := os.ReadDir(all(data))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var erased []tga.ID
	for _, d := range dirs {
		id, notOurs := tga.ParseID(d.Name())
		if notOurs != nil {
			continue
		}
		for head, err := range s.Attachments(ctx, chain.AttachStream, keyspace.StreamKey(id, 0)) {
			if err != nil {
				return err
			}
			if was, err := chain.ReadStateErasure(head.Value); err != nil {
				return err
			} else if was != nil {
				erased = append(erased, id)
			}
		}
	}
	return errors.Join(err, Forget(data, erased))
}

// wipe fills a file with zeros.
func wipe(path string) (err error) {
	if err := os.Chmod(path, 0o600); err != nil { // git makes its files read-only
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err := io.CopyN(f, zeros{}, info.Size()); err != nil {
		return err
	}
	return f.Sync()
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
