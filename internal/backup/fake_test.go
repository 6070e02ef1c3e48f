package backup_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/backup/bucket"
)

// fake is an object storage service in memory.
type fake struct {
	mu    sync.Mutex
	all   map[string]object
	tags  int
	now   time.Time
	sent  int64                                // bytes that were uploaded
	puts  int                                  // objects
	asked int                                  // requests
	fault func(n int, what string) (f fault)   // of a request
	stale func(all map[string]object) []string // names that a list returns instead of the real ones
}

type object struct {
	body    []byte
	tag     string
	changed time.Time
}

// fault is what the service does with a request.
type fault int

const (
	none    fault = iota
	refused       // not executed, and an error
	lost          // executed, and an error
	twice         // executed twice
)

var errService = errors.New("503 slow down")

func newFake() *fake { return &fake{all: map[string]object{}, now: time.Unix(1e9, 0)} }

// open connects one process to the service.
func (f *fake) open(string) (bucket.Objects, error) { return f, nil }

func (f *fake) do(ctx context.Context, what string, act func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	f.asked++
	fate := none
	if f.fault != nil {
		fate = f.fault(f.asked, what)
	}
	if fate == refused {
		return errService
	}
	err := act()
	if fate == twice {
		err = act()
	}
	if fate == lost && err == nil {
		return errService
	}
	return err
}

func (f *fake) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, sum [32]byte) error {
	raw, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	if int64(len(raw)) != size || sha256.Sum256(raw) != sum {
		return fmt.Errorf("%s: %d bytes with another digest", name, len(raw))
	}
	return f.do(ctx, "put", func() error {
		f.sent, f.puts = f.sent+size, f.puts+1
		f.set(name, raw)
		return nil
	})
}

func (f *fake) Has(ctx context.Context, name string) (has bool, err error) {
	err = f.do(ctx, "has", func() error {
		_, has = f.all[name]
		return nil
	})
	return has, err
}

func (f *fake) set(name string, body []byte) string {
	f.tags++
	tag := fmt.Sprint(f.tags)
	f.all[name] = object{body, tag, f.now}
	return tag
}

func (f *fake) Swap(ctx context.Context, name string, body []byte, tag string) (next string, err error) {
	err = f.do(ctx, "swap", func() error {
		if f.all[name].tag != tag {
			return bucket.ErrChanged
		}
		next = f.set(name, body)
		return nil
	})
	return next, err
}

func (f *fake) Get(ctx context.Context, name string) (body io.ReadCloser, tag string, err error) {
	err = f.do(ctx, "get", func() error {
		o, ok := f.all[name]
		if !ok {
			return fs.ErrNotExist
		}
		body, tag = io.NopCloser(bytes.NewReader(o.body)), o.tag
		return nil
	})
	return body, tag, err
}

func (f *fake) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		var list []bucket.Object
		err := f.do(ctx, "list", func() error {
			names := slices.Sorted(maps.Keys(f.all))
			if f.stale != nil {
				names = f.stale(f.all)
			}
			for _, name := range names {
				if strings.HasPrefix(name, prefix) {
					list = append(list, bucket.Object{Name: name, Changed: f.all[name].changed})
				}
			}
			return nil
		})
		if err != nil {
			yield(bucket.Object{}, err)
			return
		}
		for _, o := range list {
			if !yield(o, nil) {
				return
			}
		}
	}
}

func (f *fake) Delete(ctx context.Context, name string) error {
	return f.do(ctx, "delete", func() error {
		delete(f.all, name)
		return nil
	})
}

// later moves the clock of the service forward.
func (f *fake) later(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

func (f *fake) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}
