package client

import (
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/tga"
)

// described are the members of a request that only describe: what is no UTF-8 in them becomes U+FFFD on
// the way. lock and executor are paths, which the daemon looks at and compares with nothing.
var described = map[string]bool{"intent": true, "hint": true, "lock": true, "executor": true}

// exact refuses a message that JSON cannot hold as it is. On the way two keys that are no UTF-8 would
// become one, and the call of the second would be answered with the record of the first.
func exact(m any) error {
	if bad, at := notText(reflect.ValueOf(m)); at != "" {
		return tga.Errorf(tga.ValidationError, "%q: invalid UTF-8", bad[:min(len(bad), 64)]).At(at)
	}
	return nil
}

// notText returns the first string that is no UTF-8, and its pointer; "" for none.
func notText(v reflect.Value) (bad, at string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return notText(v.Elem())
		}
	case reflect.String:
		if s := v.String(); !utf8.ValidString(s) {
			return s, "/"
		}
	case reflect.Slice:
		for i := 0; i < v.Len() && v.Type().Elem().Kind() == reflect.Struct; i++ {
			if bad, at = notText(v.Index(i)); at != "" {
				return bad, at
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			if bad, at = notText(k); at == "" {
				bad, at = notText(v.MapIndex(k))
			}
			if at != "" {
				return bad, at
			}
		}
	case reflect.Struct:
		return notTextMember(v)
	}
	return "", ""
}

func notTextMember(v reflect.Value) (bad, at string) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || described[name] {
			continue
		}
		if bad, at = notText(v.Field(i)); at == "" {
			continue
		}
		if f.Anonymous {
			return bad, at
		}
		return bad, strings.TrimSuffix("/"+name+at, "/")
	}
	return "", ""
}
