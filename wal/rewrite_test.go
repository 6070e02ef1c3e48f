package wal

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/schemas/tga"
)

// even says that a body is needed if its key ends with an even digit.
func even(op *Op) (bool, error) { return (op.Key[len(op.Key)-1]-'0')%2 == 0, nil }

// forget makes b expect that the odd bodies of its first segments are gone.
func (b *bench) forget(newest uint64, where map[string]uint64) []kept {
	want := slices.Clone(b.want)
	for i := range want {
		if want[i].Body != "" && where[want[i].Key] < newest {
			if keep, err := even(&Op{Key: []byte(want[i].Key)}); err != nil || !keep {
				want[i].Body = ""
			}
		}
	}
	return want
}

// places says in which segment each body is.
func (b *bench) places() map[string]uint64 {
	b.t.Helper()
	m := map[string]uint64{}
	l, err := Open(b.options())
	if err != nil {
		b.t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Scan(Position{}, func(r *Record) error {
		return r.Ops(func(op *Op) error {
			if op.Place == Inline {
				m[string(op.Key)] = op.Ref.Segment
			}
			return nil
		})
	}); err != nil {
		b.t.Fatal(err)
	}
	return m
}

// gonly reports whether every error says that a body is gone.
func gonly(errs []error) bool {
	return !slices.ContainsFunc(errs, func(err error) bool { return !errors.Is(err, errGone) })
}

func TestRewrittenSegmentReadsAsBefore(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	for i := range 60 {
		b.append(1+i%3, 100<<10)
	}
	newest := b.last.Segment
	if newest < 3 {
		t.Fatal("too few segments")
	}
	where := b.places()
	kept, gone := map[uint64]int{}, map[uint64]int{}
	for _, k := range b.want {
		if n := where[k.Key]; k.Body == "" {
			continue
		} else if keep, err := even(&Op{Key: []byte(k.Key)}); err == nil && keep {
			kept[n]++
		} else {
			gone[n]++
		}
	}
	for gen := uint32(1); gen < 3; gen++ {
		for n := uint64(1); n < newest; n++ {
			before := len(b.content("log/" + version{n, gen - 1}.name()))
			done, err := b.log.Rewrite(t.Context(), n, even, nil)
			if err != nil {
				t.Fatal(err)
			}
			if done.Generation != gen || done.Bodies != kept[n] || done.Dropped != gone[n] || gen == 1 && done.After > done.Before*2/3 || done.After > done.Before {
				t.Errorf("segment %d: %+v, it has %d bodies to keep and %d others", n, done, kept[n], gone[n])
			}
			if after := len(b.content("log/" + version{n, gen}.name())); done.Before != int64(before) || done.After != int64(after) {
				t.Errorf("segment %d: %+v, of %d bytes and %d", n, done, before, after)
			}
		}
		r, err := b.read()
		if err != nil || r.tail.Doubt != nil || r.tail.At != b.last {
			t.Fatalf("%+v %v", r.tail, err)
		}
		if !gonly(r.errs) || len(r.errs) == 0 {
			t.Errorf("generation %d: %v", gen, r.errs)
		}
		if !slices.Equal(r.ops, b.forget(newest, where)) {
			t.Errorf("generation %d: other operations", gen)
		}
	}
	if _, err := b.log.Rewrite(t.Context(), newest, even, nil); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("the newest segment: %v", err)
	}
	for name := range b.image() {
		if n, gen, ok := parseName(name); !ok || n < newest && gen != 2 {
			t.Errorf("%s is left", name)
		}
	}
	b.append(1, 100) // and the log goes on
	if r, err := b.read(); err != nil || r.tail.Doubt != nil || r.tail.At != b.last {
		t.Errorf("%+v %v", r.tail, err)
	}
}

// TestRewriteWaitsForPins holds a pin. The bodies are there until the pin is given back. Then the
// rewrite ends, or earlier if its context ends.
func TestRewriteWaitsForPins(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	for range 9 {
		b.append(1, 900<<10)
	}
	none := func(*Op) (bool, error) { return false, nil }
	ctx, cancel := context.WithCancel(t.Context())
	unpin := b.log.Pin()
	cancel()
	if _, err := b.log.Rewrite(ctx, 1, none, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("under a pin: %v", err)
	}
	ended := make(chan error)
	go func() {
		_, err := b.log.Rewrite(t.Context(), 1, none, nil)
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	unpin()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestDamagedBodyIsNotRewritten: a body that cannot be read is evidence of damage. A rewrite
// that left it out would destroy the evidence.
func TestDamagedBodyIsNotRewritten(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	for range 9 {
		b.append(1, 900<<10)
	}
	f, err := b.fs.OpenReadWrite("log/"+segmentName(1), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damage"), 100_000); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.log.Rewrite(t.Context(), 1, func(*Op) (bool, error) { return true, nil }, nil); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("%v", err)
	}
	if _, ok := b.image()[segmentName(1)]; !ok {
		t.Error("the raw segment is gone")
	}
}

// TestCrashInARewrite crashes before each write of a rewrite. Afterwards the log is whole, with
// the bodies of before or of after the rewrite.
func TestCrashInARewrite(t *testing.T) {
	mem := crashmem.New()
	rng := rand.New(rand.NewPCG(3, 3))
	var mu sync.Mutex
	var crashes []*crashmem.FS
	on := false
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if on && changes(op) {
			for _, lost := range []int{0, 50, 100} {
				crashes = append(crashes, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: lost, RNG: rng}))
			}
		}
		return nil
	}))
	b := newBench(t, fs)
	for range 9 {
		b.append(1, 900<<10)
	}
	where := b.places()
	for range 2 {
		mu.Lock()
		on = true
		mu.Unlock()
		if _, err := b.log.Rewrite(t.Context(), 1, even, nil); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		on = false
		mu.Unlock()
	}
	after := b.forget(2, where)
	if len(crashes) < 30 {
		t.Fatalf("%d crashes", len(crashes))
	}
	for i, c := range crashes {
		b := &bench{t: t, fs: c, rng: rng, want: b.want}
		r, err := b.read()
		if err != nil || r.tail.Doubt != nil || !gonly(r.errs) {
			t.Fatalf("crash %d: %+v %v %v", i, r.tail, r.errs, err)
		}
		if !b.same(r) && !slices.Equal(r.ops, after) {
			t.Fatalf("crash %d: other operations", i)
		}
		l, err := Open(b.options())
		if err == nil {
			err = errors.Join(l.Resume(r.tail), l.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		seen := map[uint64]bool{}
		for name := range b.image() {
			n, _, ok := parseName(name)
			if ok && seen[n] {
				t.Errorf("crash %d: two files of segment %d are left", i, n)
			}
			seen[n] = true
		}
	}
}

// TestDamageOfPackedIsTold changes and cuts packed segments.
func TestDamageOfPackedIsTold(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	for range 60 {
		b.append(2, 50<<10)
	}
	where := b.places()
	newest := b.last.Segment
	if _, err := b.log.Rewrite(t.Context(), 1, even, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	want := b.forget(min(2, newest), where)
	whole := b.image()
	name := packedName(1, 1)
	for i := range 120 {
		data := bytes.Clone(whole[name])
		at := b.rng.IntN(len(data))
		if i%3 == 0 {
			at = max(0, len(data)-1-b.rng.IntN(packedTrailer+40))
		}
		if i%5 == 0 {
			data = data[:at]
		} else {
			data[at] ^= byte(1 + b.rng.IntN(255))
		}
		image := map[string][]byte{}
		for n, d := range whole {
			image[n] = d
		}
		image[name] = data
		b.lay(image)
		r, err := b.read()
		if err != nil && tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("damage at %d of %d: %v", at, len(data), err)
		}
		if err == nil && r.tail.Doubt == nil && gonly(r.errs) && !slices.Equal(r.ops, want) {
			t.Fatalf("damage at %d, and nobody says so", at)
		}
		if err == nil && r.tail.Doubt == nil && gonly(r.errs) {
			t.Errorf("damage at %d of %d is not seen at all", at, len(data))
		}
	}
}
