package config

import (
	"reflect"
	"strings"
)

// suggestion is ", did you mean …?" for the last part of an unknown key, or "".
func suggestion(key []string) string {
	if len(key) == 0 {
		return ""
	}
	near := nearest(key[len(key)-1], keysAt(reflect.TypeFor[Config](), key[:len(key)-1]))
	if near == "" {
		return ""
	}
	return ", did you mean " + near + "?"
}

// keysAt lists the keys that the table at a path may have.
func keysAt(t reflect.Type, path []string) []string {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var keys []string
	for _, f := range reflect.VisibleFields(t) {
		name := f.Tag.Get("toml")
		if name == "" {
			continue
		}
		if len(path) > 0 && path[0] == name {
			return keysAt(f.Type, path[1:])
		}
		keys = append(keys, name)
	}
	if len(path) > 0 {
		return nil
	}
	return keys
}

// nearest returns the word of a list that is at most two edits away, "" for none.
func nearest(word string, list []string) string {
	best, found := 3, ""
	for _, w := range list {
		if d := distance(strings.ToLower(word), strings.ToLower(w)); d < best {
			best, found = d, w
		}
	}
	return found
}

// distance is the Levenshtein distance of two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = min(diagonal, row[j], row[j+1]) + 1
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
