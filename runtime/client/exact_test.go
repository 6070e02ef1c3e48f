package client

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// described are the members that only describe.
var described = map[string]bool{"intent": true, "hint": true, "lock": true, "executor": true}

func namesOf(m any) []name {
	switch m := m.(type) {
	case *wire.CallRequest:
		return namesOfCall(m)
	case *wire.BeginRequest:
		return namesOfBegin(m)
	}
	return namesOfKeep(m.(*wire.KeepRequest))
}

// eachString calls f with every string in a value of a message, and with its pointer.
func eachString(v reflect.Value, at string, f func(at string, s reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		eachString(v.Elem(), at, f)
	case reflect.String:
		f(at, v)
	case reflect.Slice:
		for i := range v.Len() {
			if v.Type().Elem().Kind() == reflect.Struct {
				eachString(v.Index(i), fmt.Sprint(at, "/", i), f)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			t := v.Type().Field(i)
			name, _, _ := strings.Cut(t.Tag.Get("json"), ",")
			switch {
			case !t.IsExported():
			case t.Anonymous:
				eachString(v.Field(i), at, f)
			default:
				eachString(v.Field(i), at+"/"+name, f)
			}
		}
	}
}

// TestNamesThatAreNoTextAreRefused: a name that is no UTF-8 is refused in every member that names something.
// Otherwise two such keys could become the same key on the wire.
func TestNamesThatAreNoTextAreRefused(t *testing.T) {
	fresh := func() []any {
		call := wire.CallRequest{Resources: []wire.Resource{{}}}
		return []any{&call, &wire.BeginRequest{CallRequest: call, Connection: &wire.Connection{}}, &wire.KeepRequest{}}
	}
	for which, m := range fresh() {
		var all []string
		eachString(reflect.ValueOf(m), "", func(at string, _ reflect.Value) { all = append(all, at) })
		for n, at := range all {
			v, i := fresh()[which], 0
			eachString(reflect.ValueOf(v), "", func(_ string, s reflect.Value) {
				if i == n {
					s.SetString("a\xff")
				}
				i++
			})
			err := exact(namesOf(v)...)
			var e *tga.Error
			last := at[strings.LastIndexByte(at, '/')+1:]
			switch refused := errors.As(err, &e) && e.Code == tga.ValidationError && e.Pointer == at; {
			case described[last] && err != nil:
				t.Errorf("%T%s: %v: it only describes", v, at, err)
			case !described[last] && !refused:
				t.Errorf("%T%s: %v, want VALIDATION_ERROR there", v, at, err)
			}
		}
	}
	for _, meta := range []tga.Meta{{"subject": "a\xff"}, {"a\xff": true}} {
		if err := exact(namesOfCall(&wire.CallRequest{Meta: meta})...); err == nil {
			t.Errorf("%q passed", meta)
		}
	}
}

// TestRequestThatIsNoTextIsNotSent by any verb that sends a name.
func TestRequestThatIsNoTextIsNotSent(t *testing.T) {
	c := against(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	_, err := c.Call(t.Context(), runtime.Request{Server: "s", Tool: "t", Key: "a\xff"})
	_, begin := c.Begin(t.Context(), runtime.BeginRequest{BeginID: "b\xff"})
	_, _, keep := c.Keep(t.Context(), runtime.KeepRequest{Server: "s", Name: "n\xff"})
	for _, err := range []error{err, begin, keep} {
		if !errors.Is(err, tga.ValidationError) {
			t.Errorf("%v, want VALIDATION_ERROR", err)
		}
	}
}
