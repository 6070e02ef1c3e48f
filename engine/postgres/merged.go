package postgres

import (
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/tgad/tgad/schemas/tga"
)

// source is the list of one store, with its next item.
type source[T any] struct {
	next func() (T, error, bool)
	head T
	ok   bool
	err  error
}

func (x *source[T]) advance() {
	x.head, x.err, x.ok = x.next()
	x.ok = x.ok && x.err == nil
}

// Merged merges the ordered lists of all stores. If the list of a store fails, or a store is not open, the error is yielded at the end,
// after the items of all other stores. All lists begin at once, so that several stores of a shard that is away take the time of one.
func Merged[T any](a *AllStores, list func(*Store) iter.Seq2[T, error], compare func(x, y T) int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		all, missing := a.Every()
		sources := make([]*source[T], len(all))
		var begun sync.WaitGroup
		for i, s := range all {
			next, stop := iter.Pull2(list(s))
			defer stop()
			sources[i] = &source[T]{next: next}
			begun.Go(sources[i].advance)
		}
		begun.Wait()
		errs := []error{missing}
		for {
			sources = slices.DeleteFunc(sources, func(x *source[T]) bool {
				if !x.ok {
					errs = append(errs, x.err)
				}
				return !x.ok
			})
			if len(sources) == 0 {
				break
			}
			least := slices.MinFunc(sources, func(x, y *source[T]) int { return compare(x.head, y.head) })
			if !yield(least.head, nil) {
				return
			}
			least.advance()
		}
		if err := errors.Join(errs...); err != nil {
			var zero T
			yield(zero, tga.Errorf(tga.StoreUnavailable, "some stores of the fleet: %w", err))
		}
	}
}
