package daemon

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

const docURL = "tgad:///openapi"

// document is schemas/wire/openapi.yaml with its schemas compiled on demand.
type document struct {
	t        *testing.T
	root     map[string]any
	compiler *jsonschema.Compiler
}

// noLoader keeps a schema from reading files.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) { return nil, &json.UnsupportedValueError{Str: url} }

func openDocument(t *testing.T) *document {
	t.Helper()
	v, err := parseYAML(string(wire.OpenAPI))
	if err != nil {
		t.Fatalf("schemas/wire/openapi.yaml: %v", err)
	}
	d := &document{t: t, root: v.(map[string]any), compiler: jsonschema.NewCompiler()}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.UseLoader(noLoader{})
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(docURL, d.root); err != nil {
		t.Fatal(err)
	}
	return d
}

// at walks the document; a $ref on the way is followed.
func (d *document) at(path ...string) map[string]any {
	v, ok := d.find(path...)
	if !ok {
		d.t.Fatalf("the document has no %s", strings.Join(path, " / "))
	}
	return v
}

func (d *document) find(path ...string) (map[string]any, bool) {
	v := d.root
	for _, p := range path {
		next, ok := v[p].(map[string]any)
		if !ok {
			return nil, false
		}
		if ref, ok := next["$ref"].(string); ok {
			next = d.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		}
		v = next
	}
	return v, true
}

// validate checks JSON against a schema of the document, given by its place.
func (d *document) validate(raw []byte, path ...string) error {
	var where string
	for _, p := range path {
		where += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(p)
	}
	s, err := d.compiler.Compile(docURL + "#" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(where))
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// documented is the path of a route in the document: OpenAPI has no name for the rest of a path.
func documented(path string) string { return strings.ReplaceAll(path, "...}", "}") }

// TestDocumentHasTheRoutes walks the route table and the document both ways.
func TestDocumentHasTheRoutes(t *testing.T) {
	d := openDocument(t)
	want := map[string]bool{}
	for _, r := range routes {
		want[r.method+" "+documented(r.path)] = true
		op, ok := d.find("paths", documented(r.path), strings.ToLower(r.method))
		if !ok {
			t.Errorf("%s %s is not in the document", r.method, r.path)
			continue
		}
		var verbs []any
		for _, v := range r.verbs {
			verbs = append(verbs, string(v))
		}
		if got, _ := op["x-verbs"].([]any); !slices.Equal(got, verbs) {
			t.Errorf("%s %s: x-verbs %v, the route takes %v", r.method, r.path, got, verbs)
		}
	}
	for path, item := range d.at("paths") {
		for method := range item.(map[string]any) {
			if !want[strings.ToUpper(method)+" "+path] {
				t.Errorf("the document has %s %s, and the daemon has not", method, path)
			}
		}
	}
}

// TestDocumentHasTheMessages compares each Go message with the schema of its name.
func TestDocumentHasTheMessages(t *testing.T) {
	d := openDocument(t)
	messages := []any{
		wire.CallRequest{}, wire.Resource{}, wire.Call{}, wire.BeginRequest{}, wire.Begun{}, wire.FinishRequest{},
		wire.NotSentRequest{}, wire.ResolveRequest{}, wire.AbandonRequest{}, wire.DecideRequest{}, wire.OpenTrace{},
		wire.Traces{}, wire.Recovered{}, wire.RecoveredTrace{}, wire.Entry{}, wire.Document{}, wire.Timeline{},
		wire.Approval{}, wire.Vote{}, wire.Approvals{}, wire.AppendRequest{}, wire.NewArtifact{}, wire.NewDocument{},
		wire.Expect{}, wire.Head{}, wire.Appended{}, wire.BatchRequest{}, wire.BatchItem{}, wire.BatchAnswers{},
		wire.BatchAnswer{}, wire.LogLine{}, wire.LeaseRequest{}, wire.Lease{}, wire.Released{}, wire.CheckpointRequest{},
		wire.ExportRequest{}, wire.VerifyRequest{}, wire.Verified{}, wire.BackupRequest{}, wire.SealRequest{}, wire.Sealed{}, wire.EraseRequest{}, wire.Erased{},
		wire.GiveUpRequest{}, wire.Doubt{}, wire.Confirmation{}, wire.Mismatch{}, tga.StateChange{},
		wire.RollbackPlan{}, wire.RollbackStep{}, wire.Inverse{},
		wire.UnfreezeRequest{}, wire.Working{}, wire.Work{}, wire.Done{}, wire.Health{}, wire.Problem{},
	}
	for _, m := range messages {
		typ := reflect.TypeOf(m)
		s := d.at("components", "schemas", typ.Name())
		properties, _ := s["properties"].(map[string]any)
		required, _ := s["required"].([]any)
		var all, must []string
		for _, f := range reflect.VisibleFields(typ) {
			name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous || name == "" {
				continue
			}
			all = append(all, name)
			if option != "omitempty" {
				must = append(must, name)
			}
		}
		slices.Sort(all)
		if got := slices.Sorted(maps.Keys(properties)); !slices.Equal(got, all) {
			t.Errorf("%s: the document has %v, the message %v", typ.Name(), got, all)
		}
		var gotMust []string
		for _, r := range required {
			gotMust = append(gotMust, r.(string))
		}
		slices.Sort(must)
		slices.Sort(gotMust)
		if !slices.Equal(gotMust, must) {
			t.Errorf("%s: the document requires %v, the message %v", typ.Name(), gotMust, must)
		}
		if s["additionalProperties"] != false {
			t.Errorf("%s is not closed", typ.Name())
		}
	}
}
