package runtime_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestKeptValues: only a caller that knows the present value can change it. A value outlives the
// process, and belongs to one namespace and tool server.
func TestKeptValues(t *testing.T) {
	b := setup(t, park)
	keep := func(r runtime.KeepRequest, want string, changed bool) {
		t.Helper()
		now, did, err := b.rt.Keep(t.Context(), r)
		if err != nil || did != changed || string(now.Value) != want {
			t.Errorf("%+v: kept %q, changed %v, %v; want %q, %v", r, now.Value, did, err, want, changed)
		}
	}
	one := runtime.KeepRequest{Server: "files", Name: "pin", Value: []byte("a")}
	keep(one, "a", true)
	keep(one, "a", true) // its answer was lost
	other := one
	other.Value = []byte("b")
	keep(other, "a", false)
	other.Old = []byte("a")
	keep(other, "b", true)
	b.reopen()
	keep(one, "b", false)
	for _, elsewhere := range []runtime.KeepRequest{
		{Server: "shell", Name: "pin", Value: []byte("c")}, {Namespace: "tenant", Server: "files", Name: "pin", Value: []byte("d")},
		{Server: "files", Name: "pin2", Value: []byte{}},
	} {
		keep(elsewhere, string(elsewhere.Value), true)
	}
	list := func() map[string]string {
		all := map[string]string{}
		for k, err := range b.rt.Kept(t.Context(), "", "files", "") {
			if err != nil {
				t.Fatal(err)
			}
			all[k.Name] = string(k.Value)
		}
		return all
	}
	if got := list(); len(got) != 2 || got["pin"] != "b" || got["pin2"] != "" {
		t.Errorf("kept: %v", got)
	}
	keep(runtime.KeepRequest{Server: "files", Name: "pin", Old: []byte("b")}, "", true)
	keep(runtime.KeepRequest{Server: "files", Name: "pin", Old: []byte("b")}, "", true)
	if got := list(); len(got) != 1 {
		t.Errorf("kept: %v", got)
	}
	b.wantSends(0)
}

func TestKeptValuesHaveLimits(t *testing.T) {
	b := setup(t, park)
	for _, c := range []struct {
		name  string
		bytes int
		code  tga.Code
	}{
		{strings.Repeat("n", runtime.MaxKeptName), runtime.MaxKeptValue, ""},
		{"", 1, tga.ValidationError},
		{strings.Repeat("n", runtime.MaxKeptName+1), 1, tga.ValidationError},
		{"n", runtime.MaxKeptValue + 1, tga.LimitExceeded},
	} {
		_, _, err := b.rt.Keep(t.Context(), runtime.KeepRequest{Server: "s", Name: c.name, Value: bytes.Repeat([]byte{1}, c.bytes)})
		if tga.CodeOf(err) != c.code {
			t.Errorf("a name of %d and a value of %d bytes: %v, want %q", len(c.name), c.bytes, err, c.code)
		}
	}
}
