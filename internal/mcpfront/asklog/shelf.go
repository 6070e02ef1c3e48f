package asklog

import (
	"bytes"
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/tgad/tgad/runtime"
)

// Shelf has the values that the shim keeps in the log's store about its tool server: pinned
// definitions, unfinished calls, pending approvals and the shim's own tasks. No value licenses a
// send. The Shelf caches the store's newest answers. A change compares with the store's current
// value, not with the cache.
type Shelf struct {
	log               Log
	namespace, server string

	mu sync.Mutex
	// values is nil until Load has read them from the store.
	values map[string][]byte
}

// NewShelf makes the shelf of a tool server.
func NewShelf(log Log, namespace, server string) *Shelf {
	return &Shelf{log: log, namespace: namespace, server: server}
}

// Load reads all values from the store, once.
func (k *Shelf) Load(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.values != nil {
		return nil
	}
	values := map[string][]byte{}
	err := Bounded(ctx, func(ctx context.Context) error {
		clear(values)
		for v, err := range k.log.Kept(ctx, k.namespace, k.server) {
			if err != nil {
				return err
			}
			values[v.Name] = v.Value
		}
		return nil
	})
	if err == nil {
		k.values = values
	}
	return err
}

// Get returns a cached value, nil if there is none.
func (k *Shelf) Get(name string) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.values[name]
}

// Look reads one value from the store, because another shim may have changed it.
func (k *Shelf) Look(ctx context.Context, name string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// A Keep that would replace no value by no value changes nothing, and returns the current value.
	now, _, err := k.keep(ctx, name, nil, nil)
	return now, err
}

// With returns the values whose name starts with prefix.
func (k *Shelf) With(prefix string) map[string][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := maps.Clone(k.values)
	maps.DeleteFunc(found, func(name string, _ []byte) bool { return !strings.HasPrefix(name, prefix) })
	return found
}

// Count returns how many values have a name that starts with prefix.
func (k *Shelf) Count(prefix string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name := range k.values {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}

// Change replaces a value by what f returns, nil for none, and returns once the store has it. If
// another shim changed the value first, Change calls f again.
func (k *Shelf) Change(ctx context.Context, name string, f func(old []byte) []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		old := k.values[name]
		value := f(old)
		if bytes.Equal(old, value) {
			return nil
		}
		if _, done, err := k.keep(ctx, name, old, value); err != nil || done {
			return err
		}
	}
}

func (k *Shelf) keep(ctx context.Context, name string, old, value []byte) (now []byte, done bool, err error) {
	err = Patient(ctx, func(ctx context.Context) error {
		got, changed, err := k.log.Keep(ctx, runtime.KeepRequest{Namespace: k.namespace, Server: k.server, Name: name, Old: old, Value: value})
		now, done = got.Value, changed
		return err
	})
	switch {
	case err != nil:
		return nil, false, err
	case k.values == nil:
	case len(now) == 0:
		delete(k.values, name)
	default:
		k.values[name] = now
	}
	return now, done, nil
}
