package daemon

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/schemas/tga"
)

// forgetSnapshots wipes and removes what a store's directory has beside the store of working states that were
// erased: the snapshots of their directories and databases. Nobody has the states open: who has one open has
// the store.
func forgetSnapshots(data string, states []tga.ID) error {
	if data == "" {
		return nil
	}
	for _, id := range states {
		dir := filepath.Join(data, "workspaces", id.String())
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
			err = os.RemoveAll(dir)
		}
		if err != nil {
			return tga.Errorf(tga.StoreUnavailable, "the working state %s is erased, its snapshots in %s are not. Erase it again: %w", id, dir, err)
		}
	}
	return nil
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
