package postgres

import (
	"errors"
	"iter"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// Merged merges the ordered lists of all stores. If the list of a store fails, its error is yielded at the end, after the items of
// all other stores.
func Merged[T any](all []*Store, list func(*Store) iter.Seq2[T, error], compare func(x, y T) int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		type source struct {
			next func() (T, error, bool)
			head T
		}
		var sources []*source
		var errs []error
		advance := func(x *source) bool {
			head, err, ok := x.next()
			if err != nil {
				errs = append(errs, err)
			}
			x.head = head
			return ok && err == nil
		}
		for _, s := range all {
			next, stop := iter.Pull2(list(s))
			defer stop()
			if x := (&source{next: next}); advance(x) {
				sources = append(sources, x)
			}
		}
		for len(sources) > 0 {
			least := 0
			for i, x := range sources {
				if compare(x.head, sources[least].head) < 0 {
					least = i
				}
			}
			if !yield(sources[least].head, nil) {
				return
			}
			if !advance(sources[least]) {
				sources = slices.Delete(sources, least, least+1)
			}
		}
		if len(errs) > 0 {
			var zero T
			yield(zero, tga.Errorf(tga.StoreUnavailable, "some stores of the fleet: %w", errors.Join(errs...)))
		}
	}
}
