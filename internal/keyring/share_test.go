package keyring_test

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/tgad/tgad/internal/keyring"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// sharedRings opens one ring n times, as n processes do: a lock belongs to an open file, not to a process.
func sharedRings(t testing.TB, n int) (rings []*keyring.Ring, path string, o keyring.Options) {
	t.Helper()
	path, o = ringFile(t, true)
	o.Shared = true
	for range n {
		rings = append(rings, open(t, path, o))
	}
	return rings, path, o
}

// TestSharedRingGivesNoNumberTwice: processes that take keys at the same time get different keys. The key of a subject is
// the same for all of them, also if the subject had no key before.
func TestSharedRingGivesNoNumberTwice(t *testing.T) {
	rings, path, o := sharedRings(t, 3)
	var mu sync.Mutex
	given, subjects := map[chain.KeyID]int{}, map[string]map[chain.KeyID]bool{}
	var over sync.WaitGroup
	for _, r := range rings {
		over.Go(func() {
			for i := range 60 {
				subject := []string{"", string(rune('a' + i/6))}[i%2]
				n, err := r.Key("default", subject)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if subject == "" {
					given[n]++
				} else {
					if subjects[subject] == nil {
						subjects[subject] = map[chain.KeyID]bool{}
					}
					subjects[subject][n] = true
				}
				mu.Unlock()
			}
		})
	}
	over.Wait()
	for n, times := range given {
		if times != 1 {
			t.Errorf("key %d was given %d times", n, times)
		}
	}
	for subject, keys := range subjects {
		if len(keys) != 1 {
			t.Errorf("subject %s has the keys %v", subject, keys)
		}
		for n := range keys {
			if given[n] > 0 {
				t.Errorf("key %d is a subject's and a trace's", n)
			}
		}
	}
	if len(given) != 90 || len(subjects) != 10 {
		t.Errorf("%d keys of traces, %d subjects", len(given), len(subjects))
	}
	for n := range given { // a process that begins later has them all
		sealed := seal(t, rings[0], n)
		if b, err := open(t, path, o).Open(nil, n, sealed, []byte("place")); err != nil || string(b) != "the value" {
			t.Errorf("%q, %v", b, err)
		}
		break
	}
}

// TestSharedRingKnowsWhatOthersChanged: if one process makes, retires or destroys a key, every other process sees it at once.
func TestSharedRingKnowsWhatOthersChanged(t *testing.T) {
	rings, _, _ := sharedRings(t, 2)
	a, b := rings[0], rings[1]
	n := key(t, a, "alice")
	sealed := seal(t, a, n)
	if out, err := b.Open(nil, n, sealed, []byte("place")); err != nil || string(out) != "the value" {
		t.Errorf("another's: %q, %v", out, err)
	}
	if is, err := b.Shared(n); !is || err != nil {
		t.Errorf("shared %v, %v", is, err)
	}
	if keys, err := b.Retire("default", "alice"); err != nil || !slices.Equal(keys, []chain.KeyID{n}) {
		t.Errorf("retired %v, %v", keys, err)
	}
	next := key(t, a, "alice")
	if next == n || key(t, b, "alice") != next {
		t.Errorf("after %d was retired: %d here, %d there", n, next, key(t, b, "alice"))
	}
	if keys, err := a.Retire("default", "alice"); err != nil || !slices.Equal(keys, []chain.KeyID{n, next}) {
		t.Errorf("retired %v, %v", keys, err)
	}
	if err := errors.Join(a.Destroy(n), a.Destroy(next)); err != nil {
		t.Fatal(err)
	}
	for _, r := range rings {
		if _, err := r.Open(nil, n, sealed, []byte("place")); !errors.Is(err, chain.ErrKeyDestroyed) {
			t.Errorf("a destroyed key opens: %v", err)
		}
		if _, err := r.Seal(nil, n, nil, nil); !errors.Is(err, chain.ErrKeyDestroyed) {
			t.Errorf("a destroyed key seals: %v", err)
		}
	}
	if keys, err := b.Retire("default", "alice"); err != nil || len(keys) > 0 {
		t.Errorf("destroyed keys are retired: %v, %v", keys, err)
	}
}

// TestSharedRingIsNoOnesAlone: a process cannot open the ring for itself alone while others share it, nor share it while
// another process has it for itself alone.
func TestSharedRingIsNoOnesAlone(t *testing.T) {
	rings, path, o := sharedRings(t, 2)
	alone := o
	alone.Shared = false
	if _, err := keyring.Open(path, alone); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Errorf("opened beside who shares it: %v", err)
	}
	if err := keyring.Rotate(path, alone, alone); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Errorf("rotated beside who shares it: %v", err)
	}
	if err := errors.Join(rings[0].Close(), rings[1].Close()); err != nil {
		t.Fatal(err)
	}
	r := open(t, path, alone)
	if _, err := keyring.Open(path, o); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Errorf("shared beside who has it: %v", err)
	}
	key(t, r, "")
}

// TestMarksTellKeysOfOneNumberApart: two copies of a ring that were used separately have different keys under the same numbers.
func TestMarksTellKeysOfOneNumberApart(t *testing.T) {
	path, o := ringFile(t, false)
	r := open(t, path, o)
	first := key(t, r, "")
	r.Close()
	copied := copyOf(t, path)
	marks := func(path string) (keys []chain.KeyID, marks [][]byte) {
		t.Helper()
		r := open(t, path, o)
		key(t, r, "")
		keys, marks, err := r.Marks(0, 100)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		return keys, marks
	}
	keys, here := marks(path)
	same, there := marks(copied)
	if len(keys) != 8 || !slices.Equal(keys, same) {
		t.Fatalf("keys %v and %v", keys, same)
	}
	for i, n := range keys {
		if of := i < 4; bytes.Equal(here[i], there[i]) != of {
			t.Errorf("key %d of both: %x, %x", n, here[i], there[i])
		}
	}
	r = open(t, path, o)
	if err := r.Destroy(first); err != nil {
		t.Fatal(err)
	}
	if keys, _, err := r.Marks(0, 2); err != nil || !slices.Equal(keys, []chain.KeyID{2}) {
		t.Errorf("marks of %v, %v", keys, err)
	}
}
