package workstate

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
)

// KV is a map of strings to bytes, a [Brancher]. Calls conflict by key. A call that has
// ranged over the map conflicts with every change of it. The zero KV is not usable: see
// [NewKV].
type KV struct {
	mu      sync.Mutex
	parent  *KV
	base    *Node
	now     *Node
	read    map[string]bool
	written map[string]bool
	scanned bool
}

// NewKV returns an empty map.
func NewKV() *KV { return &KV{now: emptyTrie} }

// Get returns a copy of the value of a key; ok is false where it has none.
func (m *KV) Get(key string) (value []byte, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.touch(m.read, key)
	value, ok = trieGet(m.now, key)
	return bytes.Clone(value), ok
}

// Set sets the value of a key. A nil value is the same as an empty one.
func (m *KV) Set(key string, value []byte) {
	m.put(key, append([]byte{}, value...))
}

// Delete removes a key.
func (m *KV) Delete(key string) { m.put(key, nil) }

func (m *KV) put(key string, value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.touch(m.written, key)
	m.now = triePut(m.now, key, value)
}

func (m *KV) touch(set map[string]bool, key string) {
	if m.parent != nil {
		set[key] = true
	}
}

// Len returns the number of keys.
func (m *KV) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scanned = true
	return trieCount(m.now)
}

// All yields the keys in order with copies of their values.
func (m *KV) All() iter.Seq2[string, []byte] {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scanned = true
	pairs := triePairs(m.now)
	slices.SortFunc(pairs, func(a, b pair) int { return strings.Compare(a.key, b.key) })
	return func(yield func(string, []byte) bool) {
		for _, p := range pairs {
			if !yield(p.key, bytes.Clone(p.value)) {
				return
			}
		}
	}
}

// Snapshot implements [Snapshotter].
func (m *KV) Snapshot(context.Context) (*Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now, nil
}

// Restore implements [Snapshotter].
func (m *KV) Restore(_ context.Context, n *Node) error {
	if err := checkTrie(n); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.parent != nil {
		for _, p := range slices.Concat(triePairs(m.now), triePairs(n)) {
			was, had := trieGet(m.now, p.key)
			is, has := trieGet(n, p.key)
			if had != has || !bytes.Equal(was, is) {
				m.written[p.key] = true
			}
		}
	}
	m.now = n
	return nil
}

// Branch implements [Brancher].
func (m *KV) Branch() Branch {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &KV{parent: m, base: m.now, now: m.now, read: map[string]bool{}, written: map[string]bool{}}
}

// Check implements [Branch].
func (m *KV) Check(ignoreReads bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.parent.mu.Lock()
	defer m.parent.mu.Unlock()
	head := m.parent.now
	if head == m.base {
		return nil
	}
	var names []string
	if m.scanned && !ignoreReads && head.digest != m.base.digest {
		names = append(names, "all keys")
	}
	touched := maps.Clone(m.written)
	if !ignoreReads {
		maps.Copy(touched, m.read)
	}
	for key := range touched {
		was, had := trieGet(m.base, key)
		is, has := trieGet(head, key)
		if had != has || !bytes.Equal(was, is) {
			names = append(names, "key "+key)
		}
	}
	return Conflict(names...)
}

// Merge implements [Branch].
func (m *KV) Merge() {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.parent
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range m.written {
		value, _ := trieGet(m.now, key)
		p.now = triePut(p.now, key, value)
	}
	if p.parent != nil {
		maps.Copy(p.written, m.written)
	}
	m.mergeReads()
}

// failed makes what the branch of a call that failed has read count as read by its parent. What the
// call answers follows from that, and so does what the outer call does then.
func (m *KV) failed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.parent.mu.Lock()
	defer m.parent.mu.Unlock()
	m.mergeReads()
}

func (m *KV) mergeReads() {
	if p := m.parent; p.parent != nil {
		maps.Copy(p.read, m.read)
		p.scanned = p.scanned || m.scanned
	}
}
