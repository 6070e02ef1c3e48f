//go:build unix

package clients

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/tgad/tgad/internal/serial"
)

// node is where the package for Node is installed for the tests, as npm would install its tarball.
var node struct {
	once    sync.Once
	dir     string // has node_modules/tgad
	modules string // the compiler and the types of Node
	skip    string
	err     error
}

// installed returns a directory in which node finds the package tgad.
func installed(t *testing.T) string {
	t.Helper()
	serial.Program(t, "node")
	npm := serial.Program(t, "npm")
	node.once.Do(func() {
		if node.modules, node.err = modules(npm, "typescript"); node.err != nil {
			return
		}
		if node.dir, node.err = os.MkdirTemp("", "tgad-node-"); node.err == nil {
			node.err = install(node.modules, node.dir)
		}
	})
	if node.err != nil {
		if errors.Is(node.err, errFetch) {
			serial.Missing(t, "the compiler from npm", node.err)
		}
		t.Fatal(node.err)
	}
	return node.dir
}

var errFetch = errors.New("npm cannot fetch what package-lock.json names")

// modules returns a node_modules with the content that the package-lock.json of a folder names. It is kept
// for the next run.
func modules(npm, folder string) (string, error) {
	lock, err := os.ReadFile(filepath.Join(folder, "package-lock.json"))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	digest := sha256.Sum256(append(lock, runtime.GOOS+runtime.GOARCH...))
	kept := filepath.Join(cache, "tgad-node", hex.EncodeToString(digest[:8]))
	found := filepath.Join(kept, "node_modules")
	if _, err := os.Stat(found); err == nil {
		return found, nil
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(filepath.Dir(kept), "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := copyFiles(folder, dir, "package.json", "package-lock.json"); err != nil {
		return "", err
	}
	if err := command(dir, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
		return "", errors.Join(errFetch, err)
	}
	if err := os.Rename(dir, kept); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return found, nil
}

// packing is the README's command that makes the tarball.
const packing = "sh clients/typescript/pack.sh\n"

// install makes the package's tarball in a copy of the sources and puts it where node looks for it.
func install(modules, dir string) error {
	build := filepath.Join(dir, "checkout", "clients", "typescript")
	if err := os.CopyFS(filepath.Join(build, "src"), os.DirFS("typescript/src")); err != nil {
		return err
	}
	if err := copyFiles("typescript", build, "package.json", "package-lock.json", "tsconfig.json", "tsconfig.cjs.json", "README.md", "pack.sh"); err != nil {
		return err
	}
	if err := os.Symlink(modules, filepath.Join(build, "node_modules")); err != nil {
		return err
	}
	if err := command(filepath.Join(dir, "checkout"), "sh", "-c", packing); err != nil {
		return err
	}
	// Deno takes a package from node_modules only if a package.json names it.
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"dependencies":{"tgad":"0.1.0"}}`), 0o600); err != nil {
		return err
	}
	return unpack(filepath.Join(build, "tgad-0.1.0.tgz"), filepath.Join(dir, "node_modules", "tgad"))
}

// unpack unpacks the files of an npm tarball, which are in its folder package, into dir.
func unpack(tarball, dir string) error {
	f, err := os.Open(tarball)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for files := tar.NewReader(plain); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, strings.TrimPrefix(h.Name, "package/"))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
}

func copyFiles(from, to string, names ...string) error {
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func command(dir, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(errors.New(program+" "+strings.Join(args, " ")+": "+string(out)), err)
	}
	return nil
}

// TestLocksNameNoRegistry: packages are identified by their digests, wherever they come from.
func TestLocksNameNoRegistry(t *testing.T) {
	locks, err := filepath.Glob("../examples/frameworks/*/package-lock.json")
	if err != nil || len(locks) < 2 {
		t.Errorf("%d locks of examples, %v", len(locks), err)
	}
	for _, path := range append(locks, "typescript/package-lock.json", "typescript/test/runtimes/package-lock.json") {
		lock, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		if bytes.Contains(lock, []byte("resolved")) || bytes.Count(lock, []byte("integrity")) < 3 {
			t.Errorf("%s: write it anew with npm install --omit-lockfile-registry-resolved", path)
		}
	}
}

// TestTarballIsImported uses import and require on each runtime; both give the same names.
func TestTarballIsImported(t *testing.T) {
	t.Parallel()
	const names = `const names = Object.keys(tgad).filter((n) => n !== 'default').sort().join(' '); console.log(names, new tgad.EffectInDoubt({ detail: 'x' }).code);`
	onEach(t, func(t *testing.T, runtime string) {
		esm := runOn(t, runtime, "names.mjs", "import * as tgad from 'tgad';\n"+names)
		cjs := runOn(t, runtime, "names.cjs", "const tgad = require('tgad');\n"+names)
		if esm != cjs || !strings.Contains(esm, " Client ") || !strings.HasSuffix(esm, " EFFECT_IN_DOUBT\n") {
			t.Errorf("import has %s, require %s", esm, cjs)
		}
	})
}

// TestTypescriptUnits runs the tests that need no daemon.
func TestTypescriptUnits(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"units.mjs", "reports.mjs", "connections.mjs"} {
		text, err := os.ReadFile(filepath.Join("typescript/test", name))
		if err != nil {
			t.Fatal(err)
		}
		onEach(t, func(t *testing.T, runtime string) { runOn(t, runtime, name, string(text)) })
	}
}

// TestTypescriptIsTyped compiles a program that uses the package, as both kinds of module.
func TestTypescriptIsTyped(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	if err := copyFiles("typescript/test", dir, "types.mts", "types.cts"); err != nil {
		t.Fatal(err)
	}
	// await using needs a further library; the package itself needs only Node's types.
	for name, lib := range map[string]string{"types.mts": "es2022,esnext.disposable", "types.cts": "es2022"} {
		err := command(dir, filepath.Join(node.modules, ".bin", "tsc"), "--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--types", "node",
			"--typeRoots", filepath.Join(node.modules, "@types"), "--lib", lib, name)
		if err != nil {
			t.Error(err)
		}
	}
}
