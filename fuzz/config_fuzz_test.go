package fuzz

import (
	"os"
	"reflect"
	"testing"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/schemas/tga"
)

// FuzzConfig: a configuration is either refused with VALIDATION_ERROR, or reads the same each time.
func FuzzConfig(f *testing.F) { fuzzConfig(f) }

func fuzzConfig(f fuzzer) {
	example, err := os.ReadFile("../examples/tgad.toml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	for _, s := range []string{
		"", "profile = \"strict\"", "allow_all = true", "[limits]\nrequest_bytes = \"1KiB\"", "[limits]\ncall_timeout = \"-1s\"",
		"[[server]]\nid = \"a\"\ntype = \"http\"\nurl = \"http://localhost\"", "[[rule]]\nserver = \"*\"\ndecision = \"approve\"",
		"a.b.c = 1", "x = [[[[[[", "[[server]]\n[[server]]", "t = 1979-05-27T07:32:00Z", "i = 9223372036854775808",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(bounded(func(t *testing.T, raw []byte) {
		c, err := assemble.Parse("tgad.toml", raw)
		if err != nil {
			if code := tga.CodeOf(err); code != tga.ValidationError {
				t.Fatalf("%q is refused with %s: %v", raw, code, err)
			}
			return
		}
		again, err := assemble.Parse("tgad.toml", raw)
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Fatalf("%q is read as two configurations (%v)", raw, err)
		}
	}))
}
