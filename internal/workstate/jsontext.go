package workstate

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"

	"github.com/tgad/tgad/schemas/tga"
)

// encodeItem returns the stored form of a slice's item. Items are kept as bytes, so
// nobody can change one after it was appended.
func encodeItem(v any) ([]byte, error) {
	out, err := marshal(v)
	if err == nil && lossy(out) {
		err = tga.Errorf(tga.ValidationError, "item of type %T holds a string that is not UTF-8", v)
	}
	return out, err
}

// marshal returns the JSON form of a value, without the escapes of HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "a value of type %T has no JSON form: %w", v, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// lossy finds the escape that encoding/json writes for bytes that are not UTF-8. A real
// U+FFFD is written as itself.
func lossy(b []byte) bool {
	for at := 0; at+1 < len(b); at++ {
		if b[at] != '\\' {
			continue
		}
		if bytes.HasPrefix(b[at:], []byte(`\ufffd`)) {
			return true
		}
		at++ // the escaped character
	}
	return false
}

// strict decodes one JSON value and refuses unknown members and trailing bytes.
func strict(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return tga.Errorf(tga.ValidationError, "%w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return tga.Errorf(tga.ValidationError, "more than one JSON value")
	}
	return nil
}

// compact returns raw without insignificant space. raw is valid JSON.
func compact(raw []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

// publicPath is the import path by which programs name the types of this package. Snapshots
// have it in the names of slices and resources, so it stays when the code moves: under another
// name a stored state would not find its content again.
const publicPath = "github.com/tgad/tgad/runtime/workstate"

var ownPath = reflect.TypeFor[Node]().PkgPath()

// nameOf returns the name of a type in snapshots: import path, a dot, the type's name.
func nameOf(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return "*" + nameOf(t.Elem())
	case t.PkgPath() == "":
		return t.String()
	case t.PkgPath() == ownPath:
		return publicPath + "." + t.Name()
	}
	return t.PkgPath() + "." + t.Name()
}
