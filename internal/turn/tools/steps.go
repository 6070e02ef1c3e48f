package tools

import (
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxSteps bounds how often a schema is applied to a place of the arguments in one call. A schema
// that refers to itself in several branches doubles that number at each level, and the validator
// cannot be interrupted. So the steps are counted before it begins.
const maxSteps = 100_000

// steps counts what the validator has to do, as if it took every branch. What one schema does at
// one place is counted once and remembered, so the count itself takes no more steps than it may
// find.
type steps struct {
	root  *jsonschema.Schema
	known map[pair]int
	work  int
	named map[string][]*jsonschema.Schema // by $dynamicAnchor; nil until one is asked for
}

type pair struct {
	schema *jsonschema.Schema
	at     *spot
}

// spot is a value of the arguments, with an identity of its own.
type spot struct {
	value any
	below map[any]*spot
}

func (p *spot) child(key, value any) *spot {
	if q := p.below[key]; q != nil {
		return q
	}
	if p.below == nil {
		p.below = map[any]*spot{}
	}
	q := &spot{value: value}
	p.below[key] = q
	return q
}

// memberName is the key of the spot of a member's name, to which propertyNames applies.
type memberName string

// tooMany is the count if the number of steps is unknown or over the limit.
const tooMany = maxSteps + 1

// count returns how many steps a schema takes with a value, at most tooMany.
func count(root *jsonschema.Schema, v any) int {
	s := steps{root: root, known: map[pair]int{}}
	return s.count(root, &spot{value: v})
}

const underWay = -1

func (s *steps) count(schema *jsonschema.Schema, at *spot) int {
	if s.work++; s.work > maxSteps {
		return tooMany
	}
	p := pair{schema, at}
	switch n := s.known[p]; {
	case n == underWay:
		return tooMany // the schema refers to itself at the same place
	case n > 0:
		return n
	}
	s.known[p] = underWay
	n := 1
	spend := func(cost int) bool {
		n, s.work = n+cost, s.work+cost
		return s.work <= maxSteps
	}
	add := func(schema *jsonschema.Schema, at *spot) {
		if schema != nil && n <= maxSteps {
			n += s.count(schema, at)
		}
	}
	if schema.Bool == nil {
		s.here(schema, at, add)
		if schema.DraftVersion >= 2019 || schema.Ref == nil {
			if schema.Enum != nil {
				spend(len(schema.Enum.Values))
			}
			switch v := at.value.(type) {
			case map[string]any:
				if spend(len(schema.Required) + len(v)*len(schema.PatternProperties)) {
					s.members(schema, at, v, add)
				}
			case []any:
				s.elements(schema, at, v, add)
			}
		}
	}
	if n = min(n, tooMany); s.work > maxSteps {
		n = tooMany
	}
	s.known[p] = n
	return n
}

// here adds the schemas that apply to the same place.
func (s *steps) here(schema *jsonschema.Schema, at *spot, add func(*jsonschema.Schema, *spot)) {
	if add(schema.Ref, at); schema.Ref != nil && schema.DraftVersion < 2019 {
		return
	}
	for _, list := range [][]*jsonschema.Schema{schema.AllOf, schema.AnyOf, schema.OneOf} {
		for _, one := range list {
			add(one, at)
		}
	}
	for _, one := range []*jsonschema.Schema{schema.Not, schema.If, schema.Then, schema.Else} {
		add(one, at)
	}
	if r := schema.RecursiveRef; r != nil {
		if r.RecursiveAnchor && r != s.root {
			// The target of the reference depends on the path to it, and may be anywhere.
			s.work = tooMany
		}
		add(r, at)
	}
	if r := schema.DynamicRef; r != nil {
		if r.Anchor == "" || r.Ref.DynamicAnchor != r.Anchor {
			add(r.Ref, at)
			return
		}
		for _, one := range s.anchored(r.Anchor) {
			add(one, at)
		}
	}
}

// members adds the schemas that apply to an object's members.
func (s *steps) members(schema *jsonschema.Schema, at *spot, v map[string]any, add func(*jsonschema.Schema, *spot)) {
	for name, member := range v {
		below := at.child(name, member)
		add(schema.Properties[name], below)
		for pattern, one := range schema.PatternProperties {
			if pattern.MatchString(name) {
				add(one, below)
			}
		}
		if more, ok := schema.AdditionalProperties.(*jsonschema.Schema); ok {
			add(more, below)
		}
		add(schema.UnevaluatedProperties, below)
		if schema.PropertyNames != nil {
			add(schema.PropertyNames, at.child(memberName(name), name))
		}
		if one, ok := schema.Dependencies[name].(*jsonschema.Schema); ok {
			add(one, at)
		}
		add(schema.DependentSchemas[name], at)
	}
}

// elements adds the schemas that apply to an array's elements.
func (s *steps) elements(schema *jsonschema.Schema, at *spot, v []any, add func(*jsonschema.Schema, *spot)) {
	first := schema.PrefixItems
	rest := schema.Items2020
	switch items := schema.Items.(type) {
	case *jsonschema.Schema:
		rest = items
	case []*jsonschema.Schema:
		first = items
		rest, _ = schema.AdditionalItems.(*jsonschema.Schema)
	}
	for i, element := range v {
		below := at.child(i, element)
		if i < len(first) {
			add(first[i], below)
		} else {
			add(rest, below)
		}
		add(schema.Contains, below)
		add(schema.UnevaluatedItems, below)
	}
}

// anchored returns the schemas of the document that have a dynamic anchor of that name: the
// reference may lead to any of them.
func (s *steps) anchored(name string) []*jsonschema.Schema {
	if s.named != nil {
		return s.named[name]
	}
	s.named = map[string][]*jsonschema.Schema{}
	seen := map[*jsonschema.Schema]bool{}
	var walk func(schema *jsonschema.Schema)
	walk = func(schema *jsonschema.Schema) {
		if schema == nil || seen[schema] {
			return
		}
		seen[schema] = true
		if a := schema.DynamicAnchor; a != "" {
			s.named[a] = append(s.named[a], schema)
		}
		for _, one := range below(schema) {
			walk(one)
		}
	}
	walk(s.root)
	return s.named[name]
}

// below returns the schemas that a schema directly contains or refers to.
func below(s *jsonschema.Schema) []*jsonschema.Schema {
	out := []*jsonschema.Schema{
		s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties,
		s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema,
	}
	if s.DynamicRef != nil {
		out = append(out, s.DynamicRef.Ref)
	}
	out = append(out, slices.Concat(s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems)...)
	for _, of := range []map[string]*jsonschema.Schema{s.Properties, s.DependentSchemas} {
		for _, one := range of {
			out = append(out, one)
		}
	}
	for _, one := range s.PatternProperties {
		out = append(out, one)
	}
	for _, one := range s.Dependencies {
		if one, ok := one.(*jsonschema.Schema); ok {
			out = append(out, one)
		}
	}
	for _, one := range []any{s.AdditionalProperties, s.AdditionalItems, s.Items} {
		switch one := one.(type) {
		case *jsonschema.Schema:
			out = append(out, one)
		case []*jsonschema.Schema:
			out = append(out, one...)
		}
	}
	return out
}
