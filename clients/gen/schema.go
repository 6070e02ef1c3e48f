package main

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// schema is the part of a JSON Schema that the document of the wire uses.
type schema struct {
	Ref         string     `yaml:"$ref"`
	Description string     `yaml:"description"`
	Type        yaml.Node  `yaml:"type"`
	Enum        []string   `yaml:"enum"`
	Const       yaml.Node  `yaml:"const"`
	Items       *schema    `yaml:"items"`
	Properties  properties `yaml:"properties"`
	Required    []string   `yaml:"required"`
}

// property is a member of an object.
type property struct {
	name string
	of   schema
}

// properties are the members of an object, in the order of the document.
type properties []property

// UnmarshalYAML keeps the order, which a map would lose.
func (p *properties) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		var s schema
		if err := n.Content[i+1].Decode(&s); err != nil {
			return err
		}
		*p = append(*p, property{n.Content[i].Value, s})
	}
	return nil
}

// types returns the JSON types that a schema allows, none if it allows any value.
func (s *schema) types() []string {
	if s.Type.Kind == yaml.ScalarNode {
		return []string{s.Type.Value}
	}
	var all []string
	for _, n := range s.Type.Content {
		all = append(all, n.Value)
	}
	return all
}

// target returns the name of the schema that a schema refers to, "" if it refers to none.
func (s *schema) target() string { return strings.TrimPrefix(s.Ref, "#/components/schemas/") }

// reached returns the schemas that roots refer to, directly or not, in the document's order.
func reached(document []byte, roots []string) (properties, error) {
	var doc struct {
		Components struct {
			Schemas properties `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(document, &doc); err != nil {
		return nil, err
	}
	all := doc.Components.Schemas
	want := map[string]bool{}
	var walk func(s *schema) error
	reach := func(name string) error {
		if want[name] {
			return nil
		}
		i := slices.IndexFunc(all, func(p property) bool { return p.name == name })
		if i < 0 {
			return fmt.Errorf("the document has no schema %s", name)
		}
		want[name] = true
		return walk(&all[i].of)
	}
	walk = func(s *schema) error {
		if s.Ref != "" {
			return reach(s.target())
		}
		if s.Items != nil {
			if err := walk(s.Items); err != nil {
				return err
			}
		}
		for i := range s.Properties {
			if err := walk(&s.Properties[i].of); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range roots {
		if err := reach(name); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(p property) bool { return !want[p.name] }), nil
}
