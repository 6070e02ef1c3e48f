package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestNewFileIsThereWhenItIsWhole: a file of --output has its name when all of it is written, replaces nothing, and after an error
// nothing of it stays.
func TestNewFileIsThereWhenItIsWhole(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		there, meanwhile bool
		fails            error
		want             error
		left             []string
	}{
		"nothing is there":          {left: []string{"out mine"}},
		"the file is there":         {there: true, want: fs.ErrExist, left: []string{"out theirs"}},
		"the file is there by then": {meanwhile: true, want: fs.ErrExist, left: []string{"out theirs"}},
		"it cannot be written":      {fails: failed, want: failed},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			out := filepath.Join(dir, "out")
			theirs := func() {
				if err := os.WriteFile(out, []byte("theirs"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if c.there {
				theirs()
			}
			err := newFile(out, func(w io.Writer) error {
				if c.there {
					t.Error("it is written over a file")
				}
				// More than is kept in memory before it is written.
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return err
				}
				if _, err := os.Lstat(out); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("a part has the name: %v", err)
				}
				if c.meanwhile {
					theirs()
				}
				return c.fails
			})
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			var left []string
			entries, err := os.ReadDir(dir)
			for _, e := range entries {
				whose, info := "theirs", fs.FileInfo(nil)
				if info, err = e.Info(); err == nil && info.Size() == 1<<20 && info.Mode().Perm() == 0o600 {
					whose = "mine"
				}
				left = append(left, e.Name()+" "+whose)
			}
			if err != nil || !slices.Equal(left, c.left) {
				t.Errorf("%q is left, want %q: %v", left, c.left, err)
			}
		})
	}
}
