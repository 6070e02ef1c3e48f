package schemas_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

// denyAll refuses every reference from a schema to another document: a schema must not need a file
// or the network.
type denyAll struct{}

func (denyAll) Load(url string) (any, error) { return nil, fmt.Errorf("reference to %s", url) }

func compile(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	compiled := make(map[string]*jsonschema.Schema)
	names, err := fs.Glob(golden.Schemas, "tga/v1/*.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := golden.Schemas.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c := jsonschema.NewCompiler()
		c.UseLoader(denyAll{})
		c.DefaultDraft(jsonschema.Draft2020)
		c.AssertFormat()
		if err := c.AddResource("mem:"+name, doc); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s, err := c.Compile("mem:" + name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		compiled[strings.TrimSuffix(strings.TrimPrefix(name, "tga/v1/"), ".schema.json")] = s
	}
	return compiled
}

var decoders = map[string]func([]byte) error{
	"execution_log_entry":  func(b []byte) error { _, err := tga.DecodeLogEntry(b); return err },
	"execution_state":      func(b []byte) error { _, err := tga.DecodeExecutionState(b); return err },
	"execution_checkpoint": func(b []byte) error { _, err := tga.DecodeCheckpoint(b); return err },
	"note":                 func(b []byte) error { _, err := tga.DecodeNote(b); return err },
	"action_request":       decodeArtifact,
	"supervisor_decision":  decodeArtifact,
	"tool_call":            decodeArtifact,
	"tool_effect":          decodeArtifact,
}

func decodeArtifact(b []byte) error { _, err := tga.DecodeArtifact(b, tga.Limits{}); return err }

// documents returns valid documents by schema: all of the golden chain's.
func documents(t *testing.T) map[string][]map[string]any {
	t.Helper()
	b, err := golden.Vectors.ReadFile("tga/golden_chain.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Traces []struct {
			Artifacts, Entries, Notes []map[string]any
			State, Checkpoint         map[string]any
		}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	docs := make(map[string][]map[string]any)
	for _, trace := range file.Traces {
		all := slices.Concat(trace.Artifacts, trace.Entries, trace.Notes, []map[string]any{trace.State, trace.Checkpoint})
		for _, doc := range all {
			id := doc["schema_id"].(string)
			name := id[strings.LastIndexByte(id, '.')+1:]
			docs[name] = append(docs[name], doc)
		}
	}
	return docs
}

func TestEveryFormatHasASchemaAndADecoder(t *testing.T) {
	compiled, docs := compile(t), documents(t)
	for name := range decoders {
		if compiled[name] == nil {
			t.Errorf("%s has no schema", name)
		}
		if len(docs[name]) == 0 {
			t.Errorf("%s has no valid document among the vectors", name)
		}
	}
	for name := range compiled {
		if decoders[name] == nil {
			t.Errorf("schema %s has no decoder", name)
		}
	}
}

func TestSchemasAcceptTheGoldenChain(t *testing.T) {
	compiled := compile(t)
	for name, docs := range documents(t) {
		for i, doc := range docs {
			if err := compiled[name].Validate(doc); err != nil {
				t.Errorf("%s %d: %v", name, i, err)
			}
		}
	}
}

// odd are the values that replace each member of each document in turn.
var odd = []any{
	nil, true, false, "", "x", "/", "/p", "10 chars..", strings.Repeat("é", 9), strings.Repeat("é", 200), strings.Repeat("é", 201),
	strings.Repeat("é", 255), strings.Repeat("é", 256), strings.Repeat("é", 500), strings.Repeat("é", 501),
	strings.Repeat("é", 1000), strings.Repeat("é", 1001), strings.Repeat("a", 64), strings.Repeat("A", 64), strings.Repeat("a", 128), strings.Repeat("a", 129),
	strings.Repeat("0", 64), strings.Repeat("g", 64), "a/b.c-d_E9", "a b", "a\n", "ABC_9", "ABC_9\n", "aé",
	"01936a8b-4c2d-7000-8000-000000000001", "01936a8b-4c2d-4000-8000-000000000001", "01936a8b-4c2d-7000-7000-000000000001",
	"01936A8B-4c2d-7000-8000-000000000001", "01936a8b-4c2d-7000-8000-00000000000",
	"2026-01-15T19:00:00.000Z", "2026-02-29T19:00:00.000Z", "2024-02-29T19:00:00.000Z", "2026-13-15T19:00:00.000Z", "2026-01-15T24:00:00.000Z",
	"2026-01-15T19:00:60.000Z", "2016-12-31T23:59:60.000Z", "2026-01-15T19:00:00Z", "2026-01-15T19:00:00.0000Z", "2026-01-15T19:00:00,000Z", "2026-01-15T19:00:00.000+00:00", "0000-01-01T00:00:00.000Z",
	"PENDING", "EXECUTING", "None", "APPROVE", "DENY", "NEEDS_APPROVAL", "SUCCESS", "ERROR", "DENIED", "READ", "HIGH_RISK", "read", "sha256", "sha512", "repo", "doc_id",
	"action_request", "supervisor_decision", "tool_call", "tool_effect", "v1", "tga.v1", "aQ.bQ.cQ", "aQAA.bQA.cQ", "a.bQ.cQ", "aQ.b.cQ", "aQ.bQ.c", "aQ.bQ.cQAAc", "aR.bQ.cQ", "aQ.bQB.cQ", "aQ..cQ", "aQ.bQ", "aQ.bQ.cQ.dQ", "aQ.bQ.cQ=", "aQ.bQ.cQ\n", "attempt", "9a", "_a",
	json.Number("0"), json.Number("1"), json.Number("-1"), json.Number("1.0"), json.Number("1.5"), json.Number("1e2"), json.Number("4294967295"), json.Number("4294967296"),
	json.Number("9007199254740991"), json.Number("9007199254740992"), json.Number("1e21"),
	[]any{}, []any{json.Number("1")}, []any{"x"}, []any{map[string]any{}},
	[]any{map[string]any{"kind": "repo", "id": "x"}}, []any{map[string]any{"kind": "commit_sha", "id": ""}}, []any{map[string]any{"kind": "commit_sha", "id": "x"}},
	[]any{map[string]any{"pointer": "/", "hash": strings.Repeat("a", 64)}}, []any{map[string]any{"pointer": "/", "hash": strings.Repeat("a", 64), "size_bytes": json.Number("0")}},
	map[string]any{}, map[string]any{"x": json.Number("1")}, map[string]any{"x": nil}, map[string]any{"x": []any{}}, map[string]any{"x": map[string]any{}},
	map[string]any{"code": "A"}, map[string]any{"code": "A", "message": "m", "retryable": true}, map[string]any{"code": "a"},
	map[string]any{"status": "ERROR"}, map[string]any{"status": "DENIED", "error": map[string]any{"code": "X", "retryable": nil}},
	map[string]any{"tool_server": "s", "tool_name": "n", "args": map[string]any{}}, map[string]any{"tool_server": "s", "tool_name": "n"},
}

// Optional members that the golden chain does not have are set too.
var optionalMembers = []string{
	"meta", "idempotency_key", "minted_capability", "policy_hash", "capability_digest", "tool_class", "expected_document_hashes",
	"batch_total_bytes", "tool_call_id", "document_hashes", "content_hash_alg", "summary", "external_refs", "error", "size_bytes", "message", "retryable",
}

// mutate calls yield with doc after each single change, by name, and undoes it.
func mutate(at string, doc map[string]any, yield func(string)) {
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		old := doc[name]
		delete(doc, name)
		yield(at + "/" + name + " removed")
		doc[strings.ToUpper(name)] = old
		yield(at + "/" + name + " in capitals")
		delete(doc, strings.ToUpper(name))
		for _, v := range odd {
			doc[name] = v
			yield(fmt.Sprintf("%s/%s = %.60v", at, name, v))
		}
		doc[name] = old
		switch child := old.(type) {
		case map[string]any:
			mutate(at+"/"+name, child, yield)
		case []any:
			for i, element := range child {
				if o, ok := element.(map[string]any); ok {
					mutate(fmt.Sprintf("%s/%s/%d", at, name, i), o, yield)
				}
			}
		}
	}
	for _, name := range append([]string{"unknown", "_x", ""}, optionalMembers...) {
		if _, there := doc[name]; there {
			continue
		}
		for _, v := range odd {
			doc[name] = v
			yield(fmt.Sprintf("%s/%s added = %.60v", at, name, v))
		}
		delete(doc, name)
	}
}

// crossMember are the rules about two members that JSON Schema cannot express.
func crossMember(name string, err error) bool {
	var e *tga.Error
	return name == "execution_checkpoint" && errors.As(err, &e) && e.Code == tga.SchemaViolation &&
		strings.Contains(e.Message, "but the state is that of")
}

// TestSchemasAgreeWithDecoders changes one member at a time of golden documents and compares the verdicts of
// schema and decoder. A wrong digest is not a disagreement: the decoder checks it last, and the schema
// cannot check it.
func TestSchemasAgreeWithDecoders(t *testing.T) {
	compiled := compile(t)
	total, accepted := 0, 0
	for name, docs := range documents(t) {
		for _, doc := range docs[:min(len(docs), 2)] {
			mutate("", doc, func(change string) {
				raw, err := json.Marshal(doc)
				if err != nil {
					t.Fatal(err)
				}
				decoded := decoders[name](raw)
				if errors.Is(decoded, tga.StateChecksumMismatch) || crossMember(name, decoded) {
					decoded = nil
				}
				if errors.Is(decoded, tga.ValidationError) {
					t.Fatalf("%s: %s: the gate refuses it: %v", name, change, decoded)
				}
				validated := compiled[name].Validate(doc)
				total++
				if decoded == nil {
					accepted++
				}
				if (decoded == nil) != (validated == nil) {
					t.Errorf("%s: %s:\n decoder: %v\n schema: %v", name, change, decoded, validated)
				}
			})
		}
	}
	t.Logf("%d changed documents, %d of them valid", total, accepted)
	if accepted == 0 || accepted == total {
		t.Errorf("the corpus does not tell good from bad: %d of %d accepted", accepted, total)
	}
}
