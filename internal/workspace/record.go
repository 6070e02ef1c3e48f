package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/schemas/tga"
)

// Kinds of record.
const (
	KindCall    = "call"
	KindRestore = "restore"
)

// Record is a call, or a restore, with the snapshots before and after it, which are git trees.
// Each record is stored as a JSON file of its own.
type Record struct {
	Version int        `json:"version"`
	Number  uint64     `json:"number"` // from 1, in the order of the snapshots before the calls
	Kind    string     `json:"kind"`
	TraceID string     `json:"trace_id,omitempty"`
	Attempt uint32     `json:"attempt,omitempty"`
	Server  string     `json:"server,omitempty"`
	Tool    string     `json:"tool,omitempty"`
	Of      uint64     `json:"of,omitempty"` // of a restore: the record before which it restored
	Began   tga.Millis `json:"began"`
	Ended   tga.Millis `json:"ended,omitempty"` // 0: it has not ended, or its process died
	Before  string     `json:"before"`
	After   string     `json:"after,omitempty"` // "" = not known
	Outcome string     `json:"outcome,omitempty"`
	Problem string     `json:"problem,omitempty"` // why there is no snapshot after it
	Exclude []string   `json:"exclude,omitempty"` // what the snapshots leave out
	Sum     string     `json:"sum"`               // SHA-256 of the record with Sum ""
}

func (r Record) sealed() Record {
	r.Sum = ""
	raw, err := json.Marshal(r)
	if err != nil {
		panic(err) // numbers and texts always have a JSON form
	}
	r.Sum = tga.Sum(raw).String()
	return r
}

func (k *Keeper) file(number uint64) string {
	return filepath.Join(k.aside, "calls", fmt.Sprintf("%012d.json", number))
}

// write makes a record durable, whole or not at all.
func (k *Keeper) write(r Record) error {
	raw, err := json.Marshal(r.sealed())
	if err != nil {
		return err
	}
	temp := filepath.Join(k.aside, "new") // the lock is held, so nobody else writes there
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := access.Create(temp)
	if err != nil {
		return err
	}
	if _, err = f.Write(append(raw, '\n')); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, k.file(r.Number)); err != nil {
		return err
	}
	return access.SyncDir(filepath.Dir(k.file(r.Number)))
}

// rewrite replaces a record, unless it was dropped meanwhile.
func (k *Keeper) rewrite(r Record) error {
	if _, err := os.Lstat(k.file(r.Number)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return k.write(r)
}

func (k *Keeper) remove(number uint64) error {
	if err := os.Remove(k.file(number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// list reads the records, oldest first. A damaged record is STATE_CHECKSUM_MISMATCH.
func (k *Keeper) list() ([]Record, error) {
	files, err := os.ReadDir(filepath.Join(k.aside, "calls"))
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "records of %s: %w", k.dir, err)
	}
	all := []Record{}
	for _, f := range files {
		text, ours := strings.CutSuffix(f.Name(), ".json")
		number, err := strconv.ParseUint(text, 10, 64)
		if !ours || err != nil {
			continue // not a record's file
		}
		r, err := k.read(number)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Record) int { return int(a.Number) - int(b.Number) })
	return all, nil
}

func (k *Keeper) read(number uint64) (r Record, err error) {
	raw, err := access.ReadFile(k.file(number))
	if err != nil {
		return r, tga.Errorf(tga.StoreUnavailable, "record %d of %s: %w", number, k.dir, err)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, tga.Errorf(tga.StateChecksumMismatch, "%s: %w", k.file(number), err)
	}
	if r.Version != tga.WorkspaceVersion {
		return r, tga.Errorf(tga.FormatTooNew, "%s has version %d, this program reads %d", k.file(number), r.Version, tga.WorkspaceVersion)
	}
	if r.sealed().Sum != r.Sum || r.Number != number {
		return r, tga.Errorf(tga.StateChecksumMismatch, "%s is not what was written", k.file(number))
	}
	return r, nil
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }
