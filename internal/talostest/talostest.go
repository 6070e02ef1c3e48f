// Package talostest checks artifacts in tests as the public Talos v1 schemas would. It does not
// have those schemas. It makes its own from schemas/tga/v1 and the points in which theirs are
// narrower (docs/FORMAT.md, "Talos"). It uses a validator that is independent of this module's
// decoders.
package talostest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tgad/tgad/internal/golden"
)

type object = map[string]any

// narrower changes a schema of this project into one that accepts what the public one accepts.
var narrower = map[string]func(schema object){
	"action_request": words,
	"supervisor_decision": func(s object) {
		s["allOf"] = []any{object{
			"if":   object{"properties": object{"decision": object{"const": "APPROVE"}}},
			"then": object{"required": []any{"minted_capability"}},
			"else": object{"properties": object{"minted_capability": false}},
		}}
	},
	"tool_call": func(s object) {
		need(s, "capability_digest")
		// A digest of zeros means that there is no capability.
		zeros := object{"const": strings.Repeat("0", 64)}
		s["properties"].(object)["capability_digest"] = object{"allOf": []any{at(s, "properties", "capability_digest"), object{"not": zeros}}}
		words(s)
	},
	"tool_effect": func(s object) {
		fault := at(s, "properties", "outcome", "properties", "error")
		need(fault, "message")
		at(fault, "properties", "message")["minLength"] = 1
		need(at(s, "properties", "document_hashes", "items"), "size_bytes")
	},
}

func words(s object) { at(s, "$defs", "tool_word")["pattern"] = "^[a-z0-9_-]{1,128}$" }

func need(s object, member string) { s["required"] = append(s["required"].([]any), member) }

func at(s object, path ...string) object {
	for _, name := range path {
		s = s[name].(object)
	}
	return s
}

// denyAll refuses every reference from a schema to another document.
type denyAll struct{}

func (denyAll) Load(url string) (any, error) { return nil, fmt.Errorf("reference to %s", url) }

// Schemas are the schemas of the four artifacts, by the last word of their schema_id.
type Schemas map[string]*jsonschema.Schema

// Compile returns the schemas.
func Compile() (Schemas, error) {
	all := Schemas{}
	for name, narrow := range narrower {
		raw, err := golden.Schemas.ReadFile("tga/v1/" + name + ".schema.json")
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		narrow(doc.(object))
		c := jsonschema.NewCompiler()
		c.UseLoader(denyAll{})
		c.DefaultDraft(jsonschema.Draft2020)
		c.AssertFormat()
		if err := c.AddResource("mem:"+name, doc); err != nil {
			return nil, err
		}
		if all[name], err = c.Compile("mem:" + name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Validate checks the text of an artifact by its schema. The error says why it is refused.
func (s Schemas) Validate(artifact []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(artifact))
	if err != nil {
		return err
	}
	o, _ := doc.(object)
	id, _ := o["schema_id"].(string)
	schema := s[id[strings.LastIndexByte(id, '.')+1:]]
	if schema == nil {
		return fmt.Errorf("%q has no schema", id)
	}
	return schema.Validate(doc)
}
