package message

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tgad/tgad/schemas/tga"
)

// FuzzNormalize checks for every input what a turn relies on: an error has a code and no message,
// and a message survives the journal and follows the rules of roles.
func FuzzNormalize(f *testing.F) {
	for _, c := range inputs {
		f.Add([]byte(c.raw), c.format, true)
		f.Add([]byte(c.raw), "", false)
	}
	f.Fuzz(func(t *testing.T, raw []byte, format string, api bool) {
		source := FromUser
		if api {
			source = FromAPI
		}
		got, err := Normalize(raw, format, source, at)
		if err != nil {
			if !errors.Is(err, tga.ValidationError) && !errors.Is(err, tga.LimitExceeded) || got != nil {
				t.Fatalf("got %v, %v", got, err)
			}
			return
		}
		encoded, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var again []Message
		if err := json.Unmarshal(encoded, &again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, again); diff != "" && !strings.Contains(diff, "Data") { // empty data and no data are the same
			t.Fatal(diff)
		}
		if len(got) == 0 {
			t.Fatal("no message and no error")
		}
		for _, m := range got {
			if m.Role != User && !api || (m.ToolCallID != "") != (m.Role == Tool) || len(m.ToolCalls) > 0 && m.Role != Assistant ||
				len(m.Content) > MaxParts || len(m.ToolCalls) > MaxToolCalls || m.Metadata.OriginalFormat == "" {
				t.Fatalf("got %+v", m)
			}
			for _, p := range m.Content {
				if !utf8.ValidString(p.Text) {
					t.Fatalf("text %q", p.Text)
				}
			}
		}
	})
}

// FuzzRedact checks that redacted JSON is still JSON, and that a filter finds nothing in its own
// output.
func FuzzRedact(f *testing.F) {
	for _, kinds := range []map[string][]string{secretsOf, piiOf} {
		for _, samples := range kinds {
			for _, s := range samples {
				in, _ := marked(s)
				f.Add([]byte(in))
				f.Add([]byte(`{"a":[1,` + string(appendQuoted(nil, in)) + `]}`))
			}
		}
	}
	for _, s := range clean {
		f.Add([]byte(s))
	}
	c := compiled(f, Filter{Secrets: true, PII: allPII, Action: Redact})
	block := compiled(f, Filter{Secrets: true, PII: allPII})
	f.Fuzz(func(t *testing.T, raw []byte) {
		in := string(raw)
		once, found, err := c.ApplyBytes(raw)
		if err != nil {
			t.Fatal(err)
		}
		if string(raw) != in {
			t.Fatal("the input was changed")
		}
		if json.Valid(raw) && utf8.Valid(raw) && !json.Valid(once) {
			t.Fatalf("%q became %q", raw, once)
		}
		if (len(found) == 0) != (string(once) == in) {
			t.Fatalf("%q became %q: %v", raw, once, found)
		}
		if _, _, err := block.ApplyBytes(raw); errors.Is(err, tga.ContentFiltered) != (len(found) > 0) {
			t.Fatalf("%q: %v, and redaction found %v", raw, err, found)
		}
	})
}
