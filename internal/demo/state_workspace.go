//go:build unix

package demo

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// workspaceFiles is how many source files the workspace has.
const workspaceFiles = 24

// layWorkspace makes a workspace from a seed: a git repository with sources, links, modes,
// an empty directory, and an .env that git ignores.
func layWorkspace(dir string, seed uint64) error {
	draw := rand.New(rand.NewPCG(seed, 0))
	for _, d := range []string{"src", "src/deep/er", "empty", "bin"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	for i := range workspaceFiles {
		at := filepath.Join(dir, "src", fmt.Sprintf("part%02d.go", i))
		if i%3 == 0 {
			at = filepath.Join(dir, "src/deep/er", fmt.Sprintf("part%02d.go", i))
		}
		var b strings.Builder
		for range 20 + draw.IntN(200) {
			fmt.Fprintf(&b, "call(v0, %d)\n", draw.Uint64())
		}
		if err := os.WriteFile(at, []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name, text string
		mode       fs.FileMode
	}{
		{".gitignore", ".env\n", 0o644}, {".env", fmt.Sprintf("SECRET=%d\n", draw.Uint64()), 0o600}, {"bin/run", "#!/bin/sh\n", 0o755},
	} {
		if err := os.WriteFile(filepath.Join(dir, f.name), []byte(f.text), f.mode); err != nil {
			return err
		}
	}
	if err := os.Symlink("src/part01.go", filepath.Join(dir, "current")); err != nil {
		return err
	}
	cmd := exec.Command("git", "init", "--quiet", "--template=", dir)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git init: %s: %w", bytes.TrimSpace(out), err)
	}
	return nil
}

// ignored says whether git ignores a file of the workspace.
func ignored(dir, name string) bool {
	return exec.Command("git", "-C", dir, "check-ignore", "--quiet", name).Run() == nil
}

// refactoring has the arguments of the tool refactor, which renames v0 everywhere. On its
// way it removes, makes and links files and empties .env, as such tools do.
type refactoring struct {
	Seed uint64 `json:"seed"`
	Fail bool   `json:"fail,omitempty"` // when all is done
	Stop int    `json:"stop,omitempty"` // in the middle of writing this file, from 1
}

var identifier = regexp.MustCompile(`\bv\d+\b`)

// apply refactors a directory.
func (r refactoring) apply(dir string, stop func() error) error {
	draw := rand.New(rand.NewPCG(r.Seed, 1))
	files, err := filepath.Glob(filepath.Join(dir, "src", "*.go"))
	if err != nil {
		return err
	}
	deep, err := filepath.Glob(filepath.Join(dir, "src/deep/er", "*.go"))
	if err != nil {
		return err
	}
	files = append(files, deep...)
	slices.Sort(files)
	draw.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	if err := os.WriteFile(filepath.Join(dir, ".env"), fmt.Appendf(nil, "SECRET=%d\n", r.Seed), 0o644); err != nil {
		return err
	}
	if err := os.Remove(files[0]); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(dir, "empty")); err != nil {
		return err
	}
	for i, name := range files[1:] {
		err := rewrite(name, fmt.Sprint("v", r.Seed), func() error {
			if i+1 == r.Stop {
				return stop()
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	link := filepath.Join(dir, "current")
	if err := os.Remove(link); err != nil {
		return err
	}
	if err := os.Symlink(filepath.Base(files[1]), link); err != nil {
		return err
	}
	if err := os.Chmod(files[1], 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "src", fmt.Sprintf("made%d.go", r.Seed)), fmt.Appendf(nil, "call(v%d)\n", r.Seed), 0o644)
}

// rewrite writes a file over in two halves.
func rewrite(name, to string, between func() error) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	b = identifier.ReplaceAll(b, []byte(to))
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if _, err = f.Write(b[:len(b)/2]); err == nil {
		err = between()
	}
	if err == nil {
		_, err = f.Write(b[len(b)/2:])
	}
	if also := f.Close(); err == nil {
		err = also
	}
	return err
}

// manifest is a directory as a witness sees it: type, mode and content of every path. It
// knows nothing of tgad.
type manifest map[string]string

func manifestOf(dir string) (manifest, error) {
	m := manifest{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = fmt.Sprintf("%x", sha256.Sum256(b))
		case info.Mode()&fs.ModeSymlink != 0:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		}
		rel, err := filepath.Rel(dir, path)
		m[rel] = info.Mode().String() + " " + content
		return err
	})
	return m, err
}

// differs names the paths in which two manifests differ.
func (m manifest) differs(o manifest) (paths []string) {
	all := maps.Clone(m)
	maps.Copy(all, o)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if m[path] != o[path] {
			paths = append(paths, path)
		}
	}
	return paths
}
