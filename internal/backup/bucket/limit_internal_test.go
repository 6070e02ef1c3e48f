package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/backup/manifest"
	"github.com/tgad/tgad/schemas/tga"
)

// inMemory is a service that keeps objects in memory.
type inMemory map[string][]byte

func (m inMemory) Put(_ context.Context, name string, body io.ReadSeeker, _ int64, _ [32]byte) (err error) {
	m[name], err = io.ReadAll(body)
	return err
}

func (m inMemory) Has(_ context.Context, name string) (bool, error) {
	_, has := m[name]
	return has, nil
}

func (m inMemory) Swap(_ context.Context, name string, body []byte, _ string) (string, error) {
	m[name] = bytes.Clone(body)
	return fmt.Sprintf("%x", sha256.Sum256(body)), nil
}

func (m inMemory) Get(_ context.Context, name string) (io.ReadCloser, string, error) {
	body, has := m[name]
	if !has {
		return nil, "", fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(body)), fmt.Sprintf("%x", sha256.Sum256(body)), nil
}

func (m inMemory) List(context.Context, string) iter.Seq2[Object, error] {
	return func(func(Object, error) bool) {}
}

func (m inMemory) Delete(_ context.Context, name string) error {
	delete(m, name)
	return nil
}

// TestListThatNobodyWouldReadIsNotWritten: a backup of so many files that their list is over the bound of a reader is refused,
// and the bucket keeps the backup before.
func TestListThatNobodyWouldReadIsNotWritten(t *testing.T) {
	was := maxHead
	t.Cleanup(func() { maxHead = was })
	dir, ctx := t.TempDir(), t.Context()
	m := &manifest.Manifest{Format: manifest.Format, Store: tga.MakeID(tga.ID{1}), Timeline: tga.MakeID(tga.ID{2})}
	add := func(n int) {
		t.Helper()
		for range n {
			name, content := fmt.Sprint(len(m.Files)), []byte(fmt.Sprint("file ", len(m.Files)))
			sum := sha256.Sum256(content)
			m.Files = append(m.Files, manifest.File{Name: name, Length: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
			if err := os.WriteFile(filepath.Join(dir, "log", name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		m.End.Group++
		raw, err := m.Encode()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, manifest.Name), raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "log"), 0o700); err != nil {
		t.Fatal(err)
	}
	objects := inMemory{}
	place := func() *Place { return NewPlace("s3://b/p", objects, time.Now, func(error) {}) }
	p := place()
	add(3)
	if err := p.Push(ctx, dir); err != nil {
		t.Fatal(err)
	}
	maxHead = len(objects[headName]) + 300
	for n, code := range []tga.Code{"", tga.LimitExceeded, tga.LimitExceeded} {
		add(1)
		if err := p.Push(ctx, dir); tga.CodeOf(err) != code {
			t.Fatalf("with %d files: %v, want %q", len(m.Files), err, code)
		}
		for _, reader := range []*Place{p, place()} {
			if has, err := reader.Holds(ctx); err != nil || has == nil || len(has.Files) != 4 {
				t.Errorf("after %d pushes the bucket has %+v, %v", n+2, has, err)
			}
		}
	}
	maxHead = was
	if err := p.Push(ctx, dir); err != nil {
		t.Error(err)
	}
	if has, err := place().Holds(ctx); err != nil || len(has.Files) != 6 {
		t.Errorf("the bucket has %+v, %v", has, err)
	}
}
