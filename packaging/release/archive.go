package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats of packages
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// entry is a file, or with a nil text a directory, of an archive.
type entry struct {
	text  []byte
	mode  int64
	owner int
}

// name is what the files of a target begin with.
func (r *release) name(t target) string { return "tgad-" + r.number() + "-" + t.String() }

// archives writes an archive for each target: the programs with what belongs to them.
func (r *release) archives(context.Context) error {
	for _, t := range r.targets {
		all := map[string]entry{}
		for _, file := range []string{"LICENSE", "README.md", "CHANGELOG.md", "examples/tgad.toml"} {
			text, err := os.ReadFile(filepath.Join(r.source, file))
			if err != nil {
				return err
			}
			all[file] = entry{text, 0o644, 0}
		}
		stage := filepath.Join(r.stage, t.String())
		err := filepath.WalkDir(stage, func(name string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			in, err := filepath.Rel(stage, name)
			if err != nil {
				return err
			}
			mode := int64(0o644)
			in, program := strings.CutPrefix(filepath.ToSlash(in), "bin/")
			if program {
				mode = 0o755
			}
			all[in] = entry{text, mode, 0}
			return nil
		})
		if err != nil {
			return err
		}
		under := map[string]entry{}
		for name, e := range all {
			under[path.Join(r.name(t), name)] = e
		}
		name, text := r.name(t)+".tar.gz", []byte(nil)
		if t.os() == "windows" {
			name = r.name(t) + ".zip"
			text, err = r.zipped(under)
		} else if text, err = r.tarred(under); err == nil {
			text, err = compressed(text, gzip.DefaultCompression)
		}
		if err != nil {
			return err
		}
		if err := put(filepath.Join(r.out, name), text); err != nil {
			return err
		}
	}
	return nil
}

// tarred makes a tar archive with the time of the commit.
func (r *release) tarred(all map[string]entry) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e := all[name]
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: e.mode, Uid: e.owner, Gid: e.owner, Size: int64(len(e.text)), ModTime: r.when.UTC(), Format: tar.FormatPAX}
		if e.text == nil {
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.text); err != nil {
			return nil, err
		}
	}
	err := w.Close() // before the bytes are taken: it writes the end
	return b.Bytes(), err
}

func (r *release) zipped(all map[string]entry) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: r.when.UTC()})
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(all[name].text); err != nil {
			return nil, err
		}
	}
	err := w.Close() // before the bytes are taken: it writes the end
	return b.Bytes(), err
}

// packages makes the .deb and the .rpm of each Linux from packaging/nfpm.yaml, whose paths are of its directory.
func (r *release) packages(context.Context) (err error) {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Chdir(here)) }()
	if err := os.Chdir(filepath.Join(r.source, "packaging")); err != nil {
		return err
	}
	// What has no time of its own in the configuration gets that of the file: a clone's is of now.
	err = filepath.WalkDir("..", func(name string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == ".git" {
			return filepath.SkipDir
		}
		return errors.Join(err, os.Chtimes(name, r.when, r.when))
	})
	if err != nil {
		return err
	}
	err = filepath.WalkDir(r.stage, func(name string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chtimes(name, r.when, r.when))
	})
	if err != nil {
		return err
	}
	for _, t := range r.targets {
		if t.os() != "linux" {
			continue
		}
		for _, format := range []string{"deb", "rpm"} {
			if err := r.pack(t, format); err != nil {
				return fmt.Errorf("%s, %s: %w", format, t, err)
			}
		}
	}
	return err
}

func (r *release) pack(t target, format string) error {
	changes := fmt.Sprintf("tgad (%s-1) stable; urgency=medium\n\n  * https://github.com/tgad/tgad/blob/main/CHANGELOG.md says what changed.\n\n -- The tgad authors <tgad@users.noreply.github.com>  %s\n", r.number(), r.when.UTC().Format(time.RFC1123Z))
	text, err := compressed([]byte(changes), gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := put(filepath.Join(r.stage, t.String(), "changelog.gz"), text); err != nil {
		return err
	}
	variables := map[string]string{"ARCH": t.arch(), "VERSION": r.number(), "STAGE": filepath.Join(r.stage, t.String())}
	config, err := nfpm.ParseFileWithEnvMapping("nfpm.yaml", func(name string) string { return variables[name] })
	if err != nil {
		return err
	}
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	info.MTime = r.when
	if r.pgp != nil {
		info.RPM.Signature.SignFn = r.pgp.sign // dpkg looks at no signature of a package's own
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	return errors.Join(packager.Package(info, io.Writer(f)), f.Close())
}
