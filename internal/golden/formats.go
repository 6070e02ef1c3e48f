package golden

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// HoldFormat fails the test of a format if the digest of its sample differs from the one in
// tga/formats.json and the version is the same. name is the constant of schemas/tga/versions.go.
// The sample is what the program writes for fixed values, or the [Shape] of a JSON document.
func HoldFormat(t interface {
	Helper()
	Errorf(string, ...any)
}, name string, version any, sample ...[]byte) {
	t.Helper()
	var formats map[string]struct{ Version, SHA256 string }
	raw, err := Vectors.ReadFile("tga/formats.json")
	if err == nil {
		err = json.Unmarshal(raw, &formats)
	}
	if err != nil {
		t.Errorf("formats.json: %v", err)
		return
	}
	sum := sha256.New()
	for _, b := range sample {
		fmt.Fprintf(sum, "%d\n%s", len(b), b)
	}
	got, have, now := hex.EncodeToString(sum.Sum(nil)), formats[name], fmt.Sprint(version)
	switch {
	case got == have.SHA256 && now == have.Version:
	case now == have.Version:
		t.Errorf("the format changed and tga.%s is still %s: raise it, then put %s into formats.json", name, now, got)
	default:
		t.Errorf("formats.json has version %q of %s: put in {%q: %q, %q: %q}", have.Version, name, "version", now, "sha256", got)
	}
}

// Shape describes the members of a document of v's type and their kinds, recursively.
func Shape(v any) []byte {
	var b strings.Builder
	shape(&b, reflect.TypeOf(v))
	return []byte(b.String())
}

func shape(b *strings.Builder, t reflect.Type) {
	_, text := t.MethodByName("MarshalText")
	switch {
	case text || t.PkgPath() == "encoding/json":
		fmt.Fprint(b, "text ", t.Kind())
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		fmt.Fprint(b, t.Kind(), " of ")
		shape(b, t.Elem())
	case t.Kind() == reflect.Map:
		b.WriteString("map of ")
		shape(b, t.Elem())
	case t.Kind() == reflect.Struct:
		b.WriteString("{")
		for i := range t.NumField() {
			f := t.Field(i)
			tag, ok := f.Tag.Lookup("json")
			if tag == "-" || !f.IsExported() {
				continue
			}
			if !ok {
				tag = f.Name
			}
			b.WriteString(tag + ": ")
			shape(b, f.Type)
			b.WriteString("; ")
		}
		b.WriteString("}")
	default:
		b.WriteString(t.Kind().String())
	}
}
