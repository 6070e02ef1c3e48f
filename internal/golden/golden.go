// Package golden gives tests access to the golden vectors in test_vectors and the JSON Schemas in
// schemas. Both are also for other programs, in any language, so they have folders of their own.
// The package reads them from the source tree, so it works only in a copy of the module.
package golden

import (
	"io/fs"
	"os"
	"path/filepath"
)

// The folders. Vectors holds tga/*.json. Schemas holds tga/v1/*.schema.json; no schema refers to
// another.
const (
	Vectors = Folder("test_vectors")
	Schemas = Folder("schemas")
)

// Folder is a folder of the module, by its path from the module's root. It is an [fs.FS].
type Folder string

// Open implements [fs.FS].
func (f Folder) Open(name string) (fs.File, error) {
	dir, err := f.dir()
	if err != nil {
		return nil, err
	}
	return dir.Open(name)
}

// ReadFile reads one file.
func (f Folder) ReadFile(name string) ([]byte, error) {
	dir, err := f.dir()
	if err != nil {
		return nil, err
	}
	return fs.ReadFile(dir, name)
}

func (f Folder) dir() (fs.FS, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	return os.DirFS(filepath.Join(root, string(f))), nil
}

// moduleRoot returns the nearest folder with a go.mod, from the test's folder upwards.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fs.ErrNotExist
		}
		dir = up
	}
	return "", err
}
