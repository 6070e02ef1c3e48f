package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

const pythonHead = "# Written by clients/gen of tgad. Change the document of the protocol, not this file.\n"

// spelled are the members of a request that are named parameters of a method. The other
// members are keyword arguments of both methods that make a call.
var spelled = []string{"tool_server", "tool_name", "args", "idempotency_key", "deadline"}

// pythonRequests writes the types of the requests, and of the keyword arguments of methods.
func pythonRequests(messages properties) []byte {
	requests := slices.DeleteFunc(slices.Clone(messages), func(p property) bool { return !isRequest(p) })
	of := func(name string) []property {
		return requests[slices.IndexFunc(requests, func(p property) bool { return p.name == name })].of.Properties
	}
	more, begin := property{name: "More"}, property{name: "BeginMore"}
	for _, p := range of("CallRequest") {
		if !slices.Contains(spelled, p.name) {
			more.of.Properties = append(more.of.Properties, p)
		}
	}
	begin.of.Properties = append(begin.of.Properties, more.of.Properties...)
	for _, p := range of("BeginRequest") {
		if strings.HasPrefix(p.name, "licence") {
			begin.of.Properties = append(begin.of.Properties, p)
		}
	}
	requests = append(requests, more, begin)
	names := map[string]bool{}
	for _, m := range requests {
		for _, p := range m.of.Properties {
			if of := &p.of; of.Items != nil {
				names[of.Items.target()] = true
			} else {
				names[of.target()] = true
			}
		}
	}
	delete(names, "")
	uses := "from ._wire import " + strings.Join(slices.Sorted(maps.Keys(names)), ", ") + "\n"
	return pythonMessages(requests, "What is asked", uses)
}

// pythonAnswers writes the types of the answers, and the types that answers and requests share.
func pythonAnswers(messages properties) []byte {
	return pythonMessages(slices.DeleteFunc(slices.Clone(messages), isRequest), "What is answered", "")
}

func isRequest(p property) bool { return strings.HasSuffix(p.name, "Request") }

// pythonMessages writes a TypedDict for each object and an alias for every other schema.
func pythonMessages(messages properties, what, uses string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, pythonHead+`"""%s, as schemas/wire/openapi.yaml describes it."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict, Union

%s`, what, uses)
	for _, m := range messages {
		if len(m.of.Properties) == 0 {
			fmt.Fprintf(&b, "%s = %s\n", m.name, pythonType(&m.of))
		}
	}
	for _, m := range messages {
		if len(m.of.Properties) > 0 {
			pythonObject(&b, m)
		}
	}
	return b.Bytes()
}

func pythonObject(b *bytes.Buffer, m property) {
	// Python 3.9 cannot mark a single member as required, so a base class has the required ones.
	base := "TypedDict"
	var required, optional []property
	for _, p := range m.of.Properties {
		if slices.Contains(m.of.Required, p.name) {
			required = append(required, p)
		} else {
			optional = append(optional, p)
		}
	}
	if len(required) > 0 && len(optional) > 0 {
		base = "_" + m.name
		fmt.Fprintf(b, "\n\nclass %s(TypedDict):\n", base)
		pythonMembers(b, required)
	}
	if len(optional) > 0 {
		fmt.Fprintf(b, "\n\nclass %s(%s, total=False):\n", m.name, base)
		pythonMembers(b, optional)
		return
	}
	fmt.Fprintf(b, "\n\nclass %s(TypedDict):\n", m.name)
	pythonMembers(b, required)
}

func pythonMembers(b *bytes.Buffer, members []property) {
	for _, p := range members {
		for line := range strings.Lines(p.of.Description) {
			fmt.Fprintf(b, "    #: %s\n", strings.TrimSpace(line))
		}
		fmt.Fprintf(b, "    %s: %s\n", p.name, pythonType(&p.of))
	}
}

var pythonTypes = map[string]string{
	"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None", "object": "Dict[str, Any]",
}

func pythonType(s *schema) string {
	switch types := s.types(); {
	case s.Ref != "":
		return s.target()
	case len(s.Enum) > 0:
		return `Literal["` + strings.Join(s.Enum, `", "`) + `"]`
	case s.Const.Value == "true":
		return "Literal[True]"
	case s.Const.Value != "":
		return fmt.Sprintf("Literal[%q]", s.Const.Value)
	case s.Items != nil:
		return "List[" + pythonElement(s.Items) + "]"
	case len(types) == 0:
		return "Any"
	case len(types) == 1:
		return pythonTypes[types[0]]
	default:
		var all []string
		for _, t := range types {
			all = append(all, pythonTypes[t])
		}
		return "Union[" + strings.Join(all, ", ") + "]"
	}
}

// pythonElement returns the type of a list's elements. Aliases of lists are written before the
// classes.
func pythonElement(s *schema) string {
	if s.Ref != "" {
		return `"` + s.target() + `"`
	}
	return pythonType(s)
}

// pythonCodes writes a class for each error code.
func pythonCodes(codes []tga.CodeInfo) []byte {
	var b bytes.Buffer
	b.WriteString(pythonHead + `"""A class for each error code, as the table of schemas/tga has them."""

from typing import Dict as _Dict, Type as _Type

from ._errors import Error
`)
	for _, c := range codes {
		fmt.Fprintf(&b, "\n\nclass %s(Error):\n    \"\"\"%s.\n\n    %s\n    %s\n    \"\"\"\n\n    code = %q\n    retryable = %s\n",
			className(c.Code), c.Title, c.Meaning, c.Remedy, c.Code, pythonBool(c.Retryable))
	}
	b.WriteString("\n\nCLASSES: _Dict[str, _Type[Error]] = {c.code: c for c in Error.__subclasses__()}\n")
	return b.Bytes()
}

func pythonBool(v bool) string {
	if v {
		return "True"
	}
	return "False"
}

// className returns the class name of a code: EffectInDoubt for EFFECT_IN_DOUBT.
func className(c tga.Code) string {
	var b strings.Builder
	for word := range strings.SplitSeq(string(c), "_") {
		if word != "LLM" {
			word = word[:1] + strings.ToLower(word[1:])
		}
		b.WriteString(word)
	}
	return b.String()
}
