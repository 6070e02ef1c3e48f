package wire_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// value is what the API's document says about one member of a message.
type value struct {
	Ref       string `yaml:"$ref"`
	Type      any
	Enum      []any
	Pattern   string
	MinLength int `yaml:"minLength"`
	Minimum   int
}

// empty is the text or number that a member may not be, although encoding/json would treat it as absent; ""
// = there is none.
func (v value) empty() string {
	switch {
	case v.Type != "integer" && (len(v.Enum) > 0 || v.Pattern != "" && !strings.HasSuffix(v.Pattern, "]*$") || v.MinLength > 0):
		return `""`
	case v.Type == "integer" && v.Minimum > 0:
		return "0"
	}
	return ""
}

// TestNothingThatIsEmptyPassesForAbsent: a member that a request may leave out may not be empty if the API's
// document says so. If a caller failed to compute a key, the call must not pass for one without a key.
func TestNothingThatIsEmptyPassesForAbsent(t *testing.T) {
	var doc struct {
		Components struct{ Schemas map[string]yaml.Node }
	}
	if err := yaml.Unmarshal(wire.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	read := func(schema string, into any) {
		node := doc.Components.Schemas[schema]
		if err := node.Decode(into); err != nil || node.IsZero() {
			t.Fatalf("schema %q of the document: %v", schema, err)
		}
	}
	walked := 0
	for _, message := range []any{
		wire.CallRequest{}, wire.BeginRequest{}, wire.FinishRequest{}, wire.NotSentRequest{}, wire.GiveUpRequest{}, wire.ResolveRequest{},
		wire.AbandonRequest{}, wire.RelicenseRequest{}, wire.AppendRequest{}, wire.LeaseRequest{}, wire.CheckpointRequest{}, wire.ExportRequest{},
	} {
		of := reflect.TypeOf(message)
		var s struct{ Properties map[string]value }
		read(of.Name(), &s)
		for _, f := range reflect.VisibleFields(of) {
			name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
			v := s.Properties[name]
			if to, ok := strings.CutPrefix(v.Ref, "#/components/schemas/"); ok {
				read(to, &v)
			}
			empty := v.empty()
			if option != "omitempty" || empty == "" {
				continue
			}
			walked++
			one := reflect.New(reflect.StructOf([]reflect.StructField{{Name: f.Name, Type: f.Type, Tag: f.Tag}}))
			err := wire.Decode([]byte(`{"`+name+`":`+empty+`}`), one.Interface())
			if e := (*tga.Error)(nil); !errors.As(err, &e) || e.Code != tga.ValidationError || e.Pointer != "/"+name {
				t.Errorf("%s with %s %s: %v", of.Name(), name, empty, err)
			}
		}
	}
	if walked < 31 {
		t.Errorf("only %d members were walked", walked)
	}
}
