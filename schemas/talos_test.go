package schemas_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/talostest"
	"github.com/tgad/tgad/schemas/tga"
)

// resealed sets the digest that a document has now, and decodes the document.
func resealed(t *testing.T, doc map[string]any) (*tga.Artifact, error) {
	t.Helper()
	given, there := doc["_digest"]
	delete(doc, "_digest")
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	canonical, err := tga.Canonicalize(raw, tga.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if !there {
		return tga.DecodeArtifact(canonical, tga.Limits{})
	}
	doc["_digest"] = given
	whole := append([]byte(`{"_digest":"`+tga.Sum(canonical).String()+`",`), canonical[1:]...)
	return tga.DecodeArtifact(whole, tga.Limits{})
}

// TestTalosRulesAgreeWithItsSchemas changes one member at a time of artifacts that the public Talos schemas
// accept, and compares CheckTalos with a validator. A document that the decoder refuses is not an artifact.
func TestTalosRulesAgreeWithItsSchemas(t *testing.T) {
	compiled, err := talostest.Compile()
	if err != nil {
		t.Fatal(err)
	}
	digest, token := strings.Repeat("a", 64), "aQ.bQ.cQ"
	bases := map[string]map[string]any{}
	for name, docs := range documents(t) {
		doc := docs[0]
		switch name {
		case "action_request":
			doc["proposal"] = map[string]any{"tool_server": "s-1", "tool_name": "t_1", "args": map[string]any{}}
		case "supervisor_decision":
			doc["decision"], doc["minted_capability"] = "APPROVE", token
		case "tool_call":
			doc["capability_digest"], doc["call"] = digest, map[string]any{"tool_server": "s-1", "tool_name": "t_1", "args": map[string]any{}}
		case "tool_effect":
			doc["outcome"] = map[string]any{"status": "ERROR", "error": map[string]any{"code": "X", "message": "m"}}
			doc["document_hashes"] = []any{map[string]any{"pointer": "/result", "hash": digest, "size_bytes": json.Number("1")}}
		default:
			continue
		}
		bases[name] = doc
	}
	taken, refused := 0, map[string]bool{}
	for name, doc := range bases {
		if a, err := resealed(t, doc); err != nil || a.CheckTalos() != nil {
			t.Fatalf("%s: %v, %v", name, err, a.CheckTalos())
		}
		mutate("", doc, func(change string) {
			a, err := resealed(t, doc)
			if err != nil {
				return
			}
			said, validated := a.CheckTalos(), compiled.Validate(a.Canonical)
			if (said == nil) != (validated == nil) {
				t.Errorf("%s: %s:\n CheckTalos: %v\n schema: %v", name, change, said, validated)
			}
			var e *tga.Error
			switch {
			case said == nil:
				taken++
			case !errors.As(said, &e) || e.Code != tga.SchemaViolation:
				t.Errorf("%s: %s: %v", name, change, said)
			default:
				refused[e.Pointer] = true
			}
		})
	}
	for _, pointer := range []string{
		"/proposal/tool_server", "/proposal/tool_name", "/call/tool_server", "/call/tool_name",
		"/minted_capability", "/capability_digest", "/outcome/error/message", "/document_hashes/0/size_bytes",
	} {
		if !refused[pointer] {
			t.Errorf("no change is refused at %s", pointer)
		}
		delete(refused, pointer)
	}
	if taken == 0 || len(refused) > 0 {
		t.Errorf("%d taken; refused elsewhere too: %v", taken, refused)
	}
}
