package workstate

import (
	"encoding/json"
	"reflect"

	"github.com/tgad/tgad/schemas/tga"
)

// TypedSlice is a session's slice of items of one type. Items are kept in their JSON
// form, so every reader gets its own copy.
type TypedSlice[T any] struct {
	s    *Session
	name string
}

// Slice returns the slice of T in s. It exists for every T; one that was never
// registered is STATE.
func Slice[T any](s *Session) TypedSlice[T] {
	return TypedSlice[T]{s, nameOf(reflect.TypeFor[T]())}
}

// Name returns the slice's name in snapshots: the type's import path and name.
func (v TypedSlice[T]) Name() string { return v.name }

// Register sets the slice's policy, for the session and all its branches. A slice that
// was used, or registered with another policy, is refused with VALIDATION_ERROR.
func (v TypedSlice[T]) Register(p Policy) error { return v.s.schema.register(v.name, p) }

// Seed sets the first items of an empty slice. VALIDATION_ERROR where it has some.
func (v TypedSlice[T]) Seed(items ...T) error {
	if n := v.Len(); n > 0 {
		return tga.Errorf(tga.ValidationError, "seed of slice %s, which has %d items", v.name, n)
	}
	return v.Append(items...)
}

// Append adds items at the end.
func (v TypedSlice[T]) Append(items ...T) error {
	stored, err := encodeItems(items)
	if err != nil {
		return err
	}
	v.s.append(v.name, stored)
	return nil
}

// Replace makes items the whole content; none empties the slice. A LOG slice is only
// appended to: VALIDATION_ERROR.
func (v TypedSlice[T]) Replace(items ...T) error {
	stored, err := encodeItems(items)
	if err != nil {
		return err
	}
	return v.s.replace(v.name, stored)
}

// Len returns the number of items.
func (v TypedSlice[T]) Len() int { return v.s.read(v.name).count }

// Latest returns the last item; ok is false where there is none.
func (v TypedSlice[T]) Latest() (item T, ok bool, err error) {
	last := v.s.read(v.name).last()
	if last == nil {
		return item, false, nil
	}
	item, err = decodeItem[T](v.name, last)
	return item, err == nil, err
}

// All returns the items in order.
func (v TypedSlice[T]) All() ([]T, error) {
	l := v.s.read(v.name)
	out := make([]T, 0, l.count)
	for raw := range l.all() {
		item, err := decodeItem[T](v.name, raw)
		if err != nil {
			return nil, err
		}
		out = append(out, item)
	}
	return out, nil
}

// Reduce registers a reducer of the slice of T for events of type E: f is given the
// items and an event and returns the items that follow. See [Session.Dispatch].
func Reduce[T, E any](s *Session, f func(items []T, event E) []T) {
	event := reflect.TypeFor[E]()
	s.schema.mu.Lock()
	defer s.schema.mu.Unlock()
	s.schema.reducers[event] = append(s.schema.reducers[event], func(s *Session, e any) error {
		v := Slice[T](s)
		items, err := v.All()
		if err != nil {
			return err
		}
		return v.Replace(f(items, e.(E))...)
	})
}

func encodeItems[T any](items []T) ([][]byte, error) {
	out := make([][]byte, 0, len(items))
	for _, item := range items {
		b, err := encodeItem(item)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

func decodeItem[T any](name string, raw []byte) (T, error) {
	var item T
	if err := json.Unmarshal(raw, &item); err != nil {
		return item, tga.Errorf(tga.SnapshotMismatch, "an item of slice %s is not of its type: %w", name, err)
	}
	return item, nil
}
