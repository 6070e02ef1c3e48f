package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

const typescriptHead = "// Written by clients/gen of tgad. Change the document of the protocol, not this file.\n"

// typescriptMessages writes an interface for each object and an alias for every other schema.
func typescriptMessages(messages properties) []byte {
	var b bytes.Buffer
	b.WriteString(typescriptHead + "// The messages of the protocol, as schemas/wire/openapi.yaml describes them.\n")
	for _, m := range messages {
		b.WriteString("\n")
		if len(m.of.Properties) == 0 {
			typescriptSays(&b, "", m.of.Description)
			fmt.Fprintf(&b, "export type %s = %s;\n", m.name, typescriptType(&m.of))
			continue
		}
		typescriptSays(&b, "", m.of.Description)
		fmt.Fprintf(&b, "export interface %s {\n", m.name)
		for _, p := range m.of.Properties {
			typescriptSays(&b, "  ", p.of.Description)
			optional := "?"
			if slices.Contains(m.of.Required, p.name) {
				optional = ""
			}
			fmt.Fprintf(&b, "  %s%s: %s;\n", p.name, optional, typescriptType(&p.of))
		}
		b.WriteString("}\n")
	}
	return b.Bytes()
}

// typescriptSays writes the description of a schema or member as a comment.
func typescriptSays(b *bytes.Buffer, indent, description string) {
	if description != "" {
		fmt.Fprintf(b, "%s/** %s */\n", indent, strings.Join(strings.Fields(description), " "))
	}
}

var typescriptTypes = map[string]string{
	"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null",
	"object": "Record<string, unknown>",
}

func typescriptType(s *schema) string {
	switch types := s.types(); {
	case s.Ref != "":
		return s.target()
	case len(s.Enum) > 0:
		return "'" + strings.Join(s.Enum, "' | '") + "'"
	case s.Const.Value == "true":
		return "true"
	case s.Const.Value != "":
		return "'" + s.Const.Value + "'"
	case s.Items != nil:
		return "Array<" + typescriptType(s.Items) + ">"
	case len(types) == 0:
		return "unknown"
	default:
		var all []string
		for _, t := range types {
			all = append(all, typescriptTypes[t])
		}
		return strings.Join(all, " | ")
	}
}

// typescriptCodes writes a class for each error code.
func typescriptCodes(codes []tga.CodeInfo) []byte {
	var b bytes.Buffer
	b.WriteString(typescriptHead + "// A class for each error code, as the table of schemas/tga has them.\n\nimport { TgadError, type ErrorFacts } from './errors.js';\n")
	for _, c := range codes {
		fmt.Fprintf(&b, "\n/** %s. %s %s */\nexport class %s extends TgadError {\n  static override readonly code = '%s';\n  override readonly name: string = '%s';\n}\n",
			c.Title, c.Meaning, c.Remedy, className(c.Code), c.Code, className(c.Code))
	}
	b.WriteString("\n/** The class of each code. */\nexport const classes: Readonly<Record<string, new (facts: ErrorFacts) => TgadError>> = {\n")
	for _, c := range codes {
		fmt.Fprintf(&b, "  %s: %s,\n", c.Code, className(c.Code))
	}
	b.WriteString("};\n")
	return b.Bytes()
}
