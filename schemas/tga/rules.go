package tga

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// field is one member of a closed object.
type field[T any] struct {
	name string
	need Code // refusal when the member is missing; "" = optional
	rule[T]
}

// rule says what one member may be. The decoder and the encoder use the same rule, so nothing
// is written that could not be read.
type rule[T any] struct {
	// set stores the value at node n in v.
	set func(d *decoder, n int32, v *T) *Error
	// fits refuses the value in v if set would refuse the same value in a text. nil: every
	// value fits.
	fits func(v *T) *Error
	// absent reports that the value in v means "leave the member out". nil: never.
	absent func(v *T) bool
}

// fields returns the members of an object in canonical order. An insertion sort is enough for
// some tens of members. slices.SortFunc would be compiled once for each kind of object.
func fields[T any](groups ...[]field[T]) []field[T] {
	all := slices.Concat(groups...)
	for i := range all {
		for ; i > 0 && all[i].name < all[i-1].name; i-- {
			all[i], all[i-1] = all[i-1], all[i]
		}
	}
	return all
}

// fitsObject refuses v if [decodeObject] would refuse its encoded form.
func fitsObject[T any](table []field[T], v *T) *Error {
	for i := range table {
		f := &table[i]
		if f.absent != nil && f.need != required && f.absent(v) {
			if f.need != "" {
				return f.missing()
			}
			continue
		}
		if f.fits != nil {
			if err := f.fits(v); err != nil {
				return err.under(f.name)
			}
		}
	}
	return nil
}

func (f *field[T]) missing() *Error {
	return Errorf(f.need, "member %s is missing", f.name).under(f.name)
}

// The functions below make rules. Their argument at returns where the value is stored in v.

// scalar is the rule for a string that parse accepts.
func scalar[T, V any](parse func(string) (V, error), at func(*T) *V) rule[T] {
	return rule[T]{set: func(d *decoder, n int32, v *T) *Error {
		s, err := d.str(n)
		if err != nil {
			return err
		}
		x, perr := parse(s)
		if perr != nil {
			return violation("%s", messageOf(perr))
		}
		*at(v) = x
		return nil
	}}
}

// messageOf returns an error's message without its code: the caller sets another code.
func messageOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

func idAt[T any](at func(*T) *ID) rule[T] {
	r := scalar(ParseID, at)
	r.fits = func(v *T) *Error {
		if id := at(v); !id.isV7() {
			return violation("id %q: not a version 7 UUID", *id)
		}
		return nil
	}
	return r
}

func digestAt[T any](at func(*T) *Digest) rule[T] { return scalar(ParseDigest, at) }

func tsAt[T any](at func(*T) *Millis) rule[T] {
	r := scalar(ParseMillis, at)
	r.fits = func(v *T) *Error {
		if ts := *at(v); ts < firstMillis || ts > LastMillis {
			return violation("time %d: want one in the years 0 to 9999", ts)
		}
		return nil
	}
	return r
}

func stateAt[T any](at func(*T) *State) rule[T] { return scalar(ParseState, at) }

// constant is the rule for a member that must be one fixed string. It is not stored in v.
func constant[T any](want string) rule[T] {
	return rule[T]{set: func(d *decoder, n int32, _ *T) *Error {
		s, err := d.str(n)
		if err == nil && s != want {
			err = violation("%q: want %q", clip(s), want)
		}
		return err
	}}
}

// chars is the rule for a string that take accepts. take returns the string to store.
func chars[T any](at func(*T) *string, take func(string) (string, *Error)) rule[T] {
	return rule[T]{
		set: func(d *decoder, n int32, v *T) *Error {
			s, err := d.str(n)
			if err == nil {
				s, err = take(s)
			}
			if err != nil {
				return err
			}
			*at(v) = s
			return nil
		},
		fits: func(v *T) *Error {
			s := *at(v)
			if !utf8.ValidString(s) {
				return notUTF8(s)
			}
			_, err := take(s)
			return err
		},
		absent: func(v *T) bool { return *at(v) == "" },
	}
}

// notUTF8 is the error that [Gate] has for a text with that string in it.
func notUTF8(s string) *Error {
	return Errorf(ValidationError, "%q: invalid UTF-8", clip(s))
}

// oneOf is the rule for one of a few strings.
func oneOf[T any](at func(*T) *string, allowed ...string) rule[T] {
	return chars(at, func(s string) (string, *Error) {
		i := slices.Index(allowed, s)
		if i < 0 {
			return "", violation("%q: want one of %s", clip(s), strings.Join(allowed, ", "))
		}
		return allowed[i], nil
	})
}

// text is the rule for a string of low to high characters (Unicode code points).
func text[T any](at func(*T) *string, low, high int) rule[T] {
	return chars(at, func(s string) (string, *Error) {
		if count := utf8.RuneCountInString(s); count < low || count > high {
			return "", violation("%d characters: want %d to %d", count, low, high)
		}
		return s, nil
	})
}

// word is the rule for a string for which matches returns true. want describes such a string,
// for errors.
func word[T any](at func(*T) *string, matches func(string) bool, want string) rule[T] {
	return chars(at, func(s string) (string, *Error) {
		if !matches(s) {
			return "", violation("%q: want %s", clip(s), want)
		}
		return s, nil
	})
}

func uintAt[T any, V ~uint32 | ~uint64 | ~int64](at func(*T) *V, low, high uint64) rule[T] {
	return rule[T]{
		set: func(d *decoder, n int32, v *T) *Error {
			u, err := d.integer(n, low, high)
			if err == nil {
				*at(v) = V(u)
			}
			return err
		},
		fits: func(v *T) *Error {
			if u := uint64(*at(v)); u < low || u > high { // a negative value becomes one above high
				return violation("want an integer from %d to %d", low, high)
			}
			return nil
		},
	}
}

// listAt is the rule for an array of at least so many closed objects. Each element is decoded
// into a copy of blank. An empty array becomes an empty slice, an absent one becomes nil.
func listAt[T, E any](at func(*T) *[]E, table []field[E], blank E, least int) rule[T] {
	few := func(items []E) *Error {
		if len(items) < least {
			return violation("want at least %d", least)
		}
		return nil
	}
	return rule[T]{
		set: func(d *decoder, n int32, v *T) *Error {
			items := make([]E, 0, 1)
			err := d.each(n, func(element int32) *Error {
				items = append(items, blank)
				return decodeObject(d, element, table, &items[len(items)-1])
			})
			*at(v) = items
			if err != nil {
				return err
			}
			return few(items)
		},
		fits: func(v *T) *Error {
			items := *at(v)
			for i := range items {
				if err := fitsObject(table, &items[i]); err != nil {
					return err.under(strconv.Itoa(i))
				}
			}
			return few(items)
		},
		absent: func(v *T) bool { return *at(v) == nil },
	}
}

// objectAt is the rule for a closed object that is always present.
func objectAt[T, E any](at func(*T) *E, table []field[E]) rule[T] {
	return rule[T]{
		set:  func(d *decoder, n int32, v *T) *Error { return decodeObject(d, n, table, at(v)) },
		fits: func(v *T) *Error { return fitsObject(table, at(v)) },
	}
}

// rawAt is the rule for an object with free members. A writer checks the object before.
func rawAt[T any](at func(*T) *[]byte) rule[T] {
	return rule[T]{set: func(d *decoder, n int32, v *T) (err *Error) {
		*at(v), err = d.rawObject(n)
		return err
	}}
}

// charset is a set of ASCII characters.
type charset [128]bool

func newCharset(chars string, ranges ...string) (c charset) {
	for _, r := range chars {
		c[r] = true
	}
	for _, r := range ranges {
		for b := r[0]; b <= r[1]; b++ {
			c[b] = true
		}
	}
	return c
}

// all reports whether s has low to high characters, all of c.
func (c *charset) all(s string, low, high int) bool {
	if len(s) < low || len(s) > high {
		return false
	}
	for i := range len(s) {
		if s[i] >= 128 || !c[s[i]] {
			return false
		}
	}
	return true
}
