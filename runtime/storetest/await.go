package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// awaiting runs Await in n goroutines, then do, and returns what they got. None of
// them may return before do.
func (w *world) awaiting(n int, key ledger.Key, do func()) []error {
	seen := *w.record(key)
	ctx, cancel := contextEnding(soon)
	defer cancel()
	errs := make([]error, n)
	var wg sync.WaitGroup
	returned := make(chan struct{}, n)
	for i := range n {
		wg.Go(func() {
			errs[i] = w.s.Await(ctx, key, seen)
			returned <- struct{}{}
		})
	}
	select {
	case <-returned:
		w.Errorf("await returned although nothing changed: %v", errs)
	case <-time.After(10 * time.Millisecond): // a goroutine that starts later finds the change already made
	}
	do()
	wg.Wait()
	return errs
}

var awaitClaims = []claim{
	{"AwaitWakesWhenTheRecordChanges", func(w *world) {
		for name, change := range map[string]func(b *Builder){
			"settle":   func(b *Builder) { w.append(b, b.End(tga.StatusSuccess)) },
			"attempt":  func(b *Builder) { w.append(b, mark(w.lease(b), 2, tga.Digest{})) },
			"not sent": func(b *Builder) { w.append(b, notSent(1)) },
		} {
			b := w.begun("")
			for _, err := range w.awaiting(8, w.know(b), func() { change(b) }) {
				if err != nil {
					w.Errorf("%s: %v", name, err)
				}
			}
		}
	}},
	{"AwaitWakesWhenTheHolderLetsGo", func(w *world) {
		b := w.begun("")
		for _, err := range w.awaiting(8, w.know(b), func() { w.release(b) }) {
			if err != nil {
				w.Error(err)
			}
		}
	}},
	{"AwaitSleepsThroughOtherAppends", func(w *world) {
		b := w.begun("")
		key := w.know(b)
		for _, err := range w.awaiting(2, key, func() {
			other := w.begun("")
			w.append(other, other.End(tga.StatusSuccess))
			w.release(other)
			w.append(b, b.End(tga.StatusSuccess))
		}) {
			if err != nil {
				w.Error(err)
			}
		}
	}},
	{"AwaitReturnsAtOnceWhereItIsLate", func(w *world) {
		b := w.begun("")
		key := w.know(b)
		seen := *w.record(key)
		w.append(b, b.End(tga.StatusSuccess))
		ctx, cancel := contextEnding(soon)
		defer cancel()
		if err := w.s.Await(ctx, key, seen); err != nil {
			w.Errorf("settled before: %v", err)
		}
		w.release(b)
		if err := w.s.Await(ctx, key, *w.record(key)); err != nil {
			w.Errorf("nobody holds the trace: %v", err)
		}
	}},
	{"AwaitEndsWithItsContext", func(w *world) {
		b := w.begun("")
		key := w.know(b)
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if err := w.s.Await(ctx, key, *w.record(key)); !errors.Is(err, context.Canceled) {
			w.Errorf("got %v", err)
		}
	}},
}
