package wire

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tgad/tgad/schemas/tga"
)

// member is one member of a message. A member without omitempty is required. One with the tag
// `wire:"filled"` is neither an empty text nor 0 where it is there.
type member struct {
	name     string
	key      string // the name as it stands in a message, with its colon
	index    []int
	required bool
	filled   bool
}

// known caches the members of message structs by type: a walk over a struct's fields costs
// more than the rest of a message.
var known sync.Map

// members lists the members of a message struct, with those of embedded structs.
func members(t reflect.Type) []member {
	if all, ok := known.Load(t); ok {
		return all.([]member)
	}
	var all []member
	for _, f := range reflect.VisibleFields(t) {
		tag, ok := f.Tag.Lookup("json")
		if !ok || f.Anonymous {
			continue
		}
		name, option, _ := strings.Cut(tag, ",")
		all = append(all, member{name, string(tga.AppendString(nil, name)) + ":", f.Index, option != "omitempty", f.Tag.Get("wire") == "filled"})
	}
	known.Store(t, all)
	return all
}

// firstRoom is enough for most messages without a large payload, in bytes.
const firstRoom = 1 << 10

// Append appends the JSON text of a message. It copies a json.RawMessage unchanged:
// encoding/json would compact it, and then the bytes shown would not be the bytes that were
// hashed.
func Append(dst []byte, v any) []byte {
	if dst == nil {
		dst = make([]byte, 0, firstRoom)
	}
	value := reflect.ValueOf(v)
	if value.Kind() != reflect.Pointer {
		// Make one addressable copy. Otherwise each member would be copied.
		at := reflect.New(value.Type()).Elem()
		at.Set(value)
		value = at
	}
	return appendValue(dst, value)
}

func appendValue(dst []byte, v reflect.Value) []byte {
	if v.Kind() == reflect.Pointer {
		return appendValue(dst, v.Elem())
	}
	switch x := v.Addr().Interface().(type) {
	case *json.RawMessage:
		if len(*x) == 0 {
			return append(dst, "null"...)
		}
		return append(dst, *x...)
	case *[]byte:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, *x)
		return append(dst, '"')
	case *tga.Meta:
		return appendMeta(dst, *x)
	case *string:
		return tga.AppendString(dst, *x)
	case encoding.TextAppender:
		dst = append(dst, '"')
		dst, _ = x.AppendText(dst) // an id, a digest or a time: cannot fail
		return append(dst, '"')
	}
	switch v.Kind() {
	case reflect.Struct:
		return appendStruct(dst, v)
	case reflect.Slice:
		dst = append(dst, '[')
		for i := range v.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendValue(dst, v.Index(i))
		}
		return append(dst, ']')
	case reflect.String:
		return tga.AppendString(dst, v.String())
	case reflect.Bool:
		return strconv.AppendBool(dst, v.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(dst, v.Int(), 10)
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(dst, v.Uint(), 10)
	}
	panic("client: no message has a " + v.Type().String())
}

func appendStruct(dst []byte, v reflect.Value) []byte {
	dst = append(dst, '{')
	first := true
	for _, m := range members(v.Type()) {
		f := v.FieldByIndex(m.index)
		// A list that is empty but not nil is written: an answer of no bytes is an answer.
		if !m.required && f.IsZero() {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendValue(append(dst, m.key...), f)
	}
	return append(dst, '}')
}

func appendMeta(dst []byte, meta tga.Meta) []byte {
	dst = append(dst, '{')
	for i, name := range slices.Sorted(maps.Keys(meta)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(tga.AppendString(dst, name), ':')
		switch x := meta[name].(type) {
		case string:
			dst = tga.AppendString(dst, x)
		case tga.Number:
			dst = append(dst, x...)
		case bool:
			dst = strconv.AppendBool(dst, x)
		default:
			dst = append(dst, "null"...)
		}
	}
	return append(dst, '}')
}

// Decode reads a message strictly: its members are those of v's type by their exact
// names, each at most once, all required ones present, and null is no value. raw must
// have passed [tga.Gate]. The error is VALIDATION_ERROR with a JSON Pointer.
//
// encoding/json alone would accept "Args" for "args" and ignore unknown members. Then the
// daemon would decide about another request than the one that the gateway's log shows.
func Decode(raw []byte, v any) error {
	return decodeValue(raw, reflect.ValueOf(v).Elem())
}

// DecodeAnswer reads a daemon's answer. A daemon of this version writes what Decode reads. A
// daemon of another version may write more members, or fewer.
func DecodeAnswer(raw []byte, v any) error {
	if Decode(raw, v) == nil {
		return nil
	}
	reflect.ValueOf(v).Elem().SetZero()
	return json.Unmarshal(raw, v)
}

// decodeValue reads one value. The pointer of its error begins at the value.
func decodeValue(raw json.RawMessage, v reflect.Value) error {
	switch p := v.Addr().Interface().(type) {
	case *json.RawMessage:
		*p = bytes.Clone(raw)
		return nil
	case *tga.Meta:
		return decodeMeta(raw, p)
	case encoding.TextUnmarshaler, *[]byte:
		return decodeLeaf(raw, v)
	}
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return decodeValue(raw, v.Elem())
	case v.Kind() == reflect.Struct:
		return decodeStruct(raw, v)
	case v.Kind() == reflect.Slice:
		return decodeSlice(raw, v)
	}
	return decodeLeaf(raw, v)
}

func decodeStruct(raw json.RawMessage, v reflect.Value) error {
	all := members(v.Type())
	given := make([]json.RawMessage, len(all))
	unknown, found := "", false
	next := 0 // members mostly come in the order of the type
	err := tga.Members(raw, func(name, value []byte) error {
		for n := range all {
			i := (next + n) % len(all)
			if all[i].name == string(name) {
				given[i], next = value, i+1
				return nil
			}
		}
		if !found {
			unknown, found = string(name), true
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, m := range all {
		if given[i] == nil {
			if m.required {
				return invalid("/"+m.name, "the member is required")
			}
			continue
		}
		if m.filled && (string(given[i]) == `""` || string(given[i]) == "0") { // compared without a copy
			return invalid("/"+m.name, "%s means nothing here: leave the member out", given[i])
		}
		if err := decodeValue(given[i], v.FieldByIndex(m.index)); err != nil {
			return under("/"+m.name, err)
		}
	}
	if found {
		return invalid("/"+tga.ReadableToken(unknown), "the member is not known")
	}
	return nil
}

func decodeSlice(raw json.RawMessage, v reflect.Value) error {
	var items []json.RawMessage
	err := tga.Elements(raw, func(value []byte) error {
		items = append(items, value)
		return nil
	})
	if err != nil {
		return err
	}
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		if err := decodeValue(item, v.Index(i)); err != nil {
			return under("/"+strconv.Itoa(i), err)
		}
	}
	return nil
}

func decodeLeaf(raw json.RawMessage, v reflect.Value) error {
	if string(raw) == "null" {
		return invalid("", "want a value, not null")
	}
	// encoding/json would make bytes of an array of numbers too.
	if v.Kind() == reflect.Slice && raw[0] != '"' {
		return invalid("", "want %s", wanted(v))
	}
	// Nearly every leaf is a string that is written as it is. encoding/json would read
	// it twice, and copy it once more.
	plain, isPlain := tga.PlainString(raw)
	switch p := v.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		if isPlain {
			if err := p.UnmarshalText(plain); err != nil {
				return invalid("", "want %s: %w", wanted(v), err)
			}
			return nil
		}
	case *string:
		if isPlain {
			*p = string(plain)
			return nil
		}
	default:
		// What is not read here, encoding/json reads, or says what is wrong with it.
		if v.CanUint() {
			if n, err := strconv.ParseUint(string(raw), 10, v.Type().Bits()); err == nil {
				v.SetUint(n)
				return nil
			}
		} else if v.CanInt() {
			if n, err := strconv.ParseInt(string(raw), 10, v.Type().Bits()); err == nil {
				if n < 0 { // no message counts or times anything below zero
					return invalid("", "want an integer that is not negative")
				}
				v.SetInt(n)
				return nil
			}
		}
	}
	if err := json.Unmarshal(raw, v.Addr().Interface()); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return invalid("", "want %s", wanted(v)) // the error names the type of Go
		}
		return invalid("", "want %s: %w", wanted(v), err)
	}
	return nil
}

// wanted is the JSON type of a leaf, in words.
func wanted(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Bool:
		return "a boolean"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if _, text := v.Addr().Interface().(encoding.TextUnmarshaler); !text {
			return "an integer"
		}
	}
	return "a string of the right form"
}

// decodeMeta reads an object of scalars and keeps each number as it is written.
func decodeMeta(raw json.RawMessage, meta *tga.Meta) error {
	*meta = tga.Meta{}
	return tga.Members(raw, func(name, value []byte) error {
		switch value[0] {
		case '{', '[':
			return invalid("/"+tga.ReadableToken(string(name)), "want a scalar")
		case '"':
			var s string
			if err := json.Unmarshal(value, &s); err != nil {
				return invalid("/"+tga.ReadableToken(string(name)), "want a string: %w", err)
			}
			(*meta)[string(name)] = s
		case 't', 'f':
			(*meta)[string(name)] = value[0] == 't'
		case 'n':
			(*meta)[string(name)] = nil
		default:
			(*meta)[string(name)] = tga.Number(value)
		}
		return nil
	})
}

// under puts the place of a part before the place in it.
func under(at string, err error) error {
	var e *tga.Error
	if errors.As(err, &e) {
		e.Pointer = at + e.Pointer
	}
	return err
}

func invalid(at, format string, args ...any) error {
	return tga.Errorf(tga.ValidationError, format, args...).At(at)
}
