//go:build slim

package assemble

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestSlimRefusesWhatItHasNot: a file that needs something which a slim tgad leaves out is refused when it
// is read, before a store is opened.
func TestSlimRefusesWhatItHasNot(t *testing.T) {
	for what, text := range map[string]string{
		"gRPC":       "[[server]]\nid = \"g\"\ntype = \"grpc\"\nurl = \"127.0.0.1:1\"\n",
		"PostgreSQL": "[[verifier]]\nresource_type = \"a\"\ntype = \"postgres\"\ndsn = \"host=/tmp\"\nquery = \"select 1\"\n",
		"SQLite":     "[[verifier]]\nresource_type = \"b\"\ntype = \"sqlite\"\nfile = \"/tmp/x\"\nquery = \"select 1\"\n",
	} {
		_, err := Parse("c.toml", []byte(text))
		if tga.CodeOf(err) != tga.ValidationError || !strings.Contains(err.Error(), "built with -tags slim, without "+what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
