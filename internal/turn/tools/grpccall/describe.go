package grpccall

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// ListTools lists the unary methods of the server as an MCP server lists its tools, each with a
// JSON Schema of its request. A server with reflection is asked each time. Methods that stream,
// or whose messages are not known, are not listed.
func (s *Server) ListTools(ctx context.Context) ([]mcpraw.Tool, error) {
	known, _, err := s.types(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("gRPC server %s: list tools: %w", s.addr, err)
	}
	var list []mcpraw.Tool
	for _, name := range known.services {
		if s.opts.Services != nil && !slices.Contains(s.opts.Services, string(name)) ||
			s.opts.Services == nil && strings.HasPrefix(string(name), "grpc.") {
			continue
		}
		d, err := known.files.FindDescriptorByName(name)
		if err != nil {
			return nil, fmt.Errorf("gRPC server %s: service %s: %w", s.addr, name, err)
		}
		service, ok := d.(protoreflect.ServiceDescriptor)
		if !ok {
			return nil, tga.Errorf(tga.ValidationError, "gRPC server %s: %s is no service", s.addr, name)
		}
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			if err := callable(m); err != nil {
				s.log.Debug("gRPC method is no tool", "addr", s.addr, "error", err)
				continue
			}
			t, err := define(m)
			if err != nil {
				s.log.Warn("gRPC method is no tool", "addr", s.addr, "method", m.FullName(), "error", err)
				continue
			}
			list = append(list, t)
		}
	}
	return list, nil
}

// define makes a tool's definition of a method. The idempotency_level that the author of the
// method declared is a hint, as an MCP server's annotations are.
func define(m protoreflect.MethodDescriptor) (mcpraw.Tool, error) {
	t := mcpraw.Tool{Name: string(m.Parent().FullName()) + "/" + string(m.Name())}
	if o, ok := m.Options().(*descriptorpb.MethodOptions); ok {
		level := o.GetIdempotencyLevel()
		t.ReadOnly = level == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
		t.Idempotent = t.ReadOnly || level == descriptorpb.MethodOptions_IDEMPOTENT
	}
	input, err := inputSchema(m.Input())
	if err != nil {
		return t, err
	}
	t.Definition, err = json.Marshal(map[string]any{
		"name":        t.Name,
		"description": commentOf(m),
		"inputSchema": input,
		"annotations": map[string]bool{"readOnlyHint": t.ReadOnly, "idempotentHint": t.Idempotent},
	})
	return t, err
}

// commentOf returns the comment above a declaration, "" if the descriptors were made without
// comments, as those of most servers are.
func commentOf(d protoreflect.Descriptor) string {
	lines := strings.Split(d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// schema is a JSON Schema of draft 2020-12.
type schema map[string]any

// inputSchema describes the JSON of a message (protobuf's JSON mapping). It allows one spelling
// of a name, lowerCamelCase. It accepts a 64-bit integer also as a string of digits, because an
// integer beyond 2^53 can be sent only as a string.
//
// LIMIT_EXCEEDED for a message that refers to more than maxMessages others.
func inputSchema(md protoreflect.MessageDescriptor) (schema, error) {
	b := &schemas{defs: map[string]schema{}}
	var root schema
	if special, ok := wellKnown[md.FullName()]; ok {
		root = special()
	} else {
		root = b.object(md)
	}
	if len(b.defs) > maxMessages {
		return nil, tga.Errorf(tga.LimitExceeded, "%s refers to more than %d messages", md.FullName(), maxMessages)
	}
	if len(b.defs) > 0 {
		root["$defs"] = b.defs
	}
	return root, nil
}

// maxMessages bounds the messages in a schema. Each method has a schema of its own, with every
// message that it refers to.
const maxMessages = 500

// schemas collects the messages that a schema refers to.
type schemas struct{ defs map[string]schema }

func (b *schemas) message(md protoreflect.MessageDescriptor) schema {
	if special, ok := wellKnown[md.FullName()]; ok {
		return special()
	}
	name := string(md.FullName())
	if _, ok := b.defs[name]; !ok && len(b.defs) <= maxMessages {
		b.defs[name] = nil // a message may contain itself
		b.defs[name] = b.object(md)
	}
	return schema{"$ref": "#/$defs/" + name}
}

func (b *schemas) object(md protoreflect.MessageDescriptor) schema {
	properties := schema{}
	var required []string
	for i := range md.Fields().Len() {
		f := md.Fields().Get(i)
		properties[f.JSONName()] = b.field(f)
		if f.Cardinality() == protoreflect.Required {
			required = append(required, f.JSONName())
		}
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	if text := commentOf(md); text != "" {
		s["description"] = text
	}
	if rules := oneofs(md); len(rules) > 0 {
		s["allOf"] = rules
	}
	return s
}

// oneofs returns rules that no two fields of a oneof are set.
func oneofs(md protoreflect.MessageDescriptor) []schema {
	var rules []schema
	for i := range md.Oneofs().Len() {
		fields := md.Oneofs().Get(i).Fields()
		for j := range fields.Len() {
			for k := range j {
				rules = append(rules, schema{"not": schema{"required": []string{fields.Get(k).JSONName(), fields.Get(j).JSONName()}}})
			}
		}
	}
	return rules
}

func (b *schemas) field(f protoreflect.FieldDescriptor) schema {
	var s schema
	switch {
	case f.IsMap():
		s = schema{"type": "object", "additionalProperties": b.value(f.MapValue())}
	case f.IsList():
		s = schema{"type": "array", "items": b.value(f)}
	default:
		s = b.value(f)
	}
	if text := commentOf(f); text != "" {
		s["description"] = text
	}
	return s
}

// value describes one value of a field.
func (b *schemas) value(f protoreflect.FieldDescriptor) schema {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return schema{"type": "boolean"}
	case protoreflect.EnumKind:
		if f.Enum().FullName() == "google.protobuf.NullValue" {
			return schema{"type": "null"}
		}
		var names []string
		for i := range f.Enum().Values().Len() {
			names = append(names, string(f.Enum().Values().Get(i).Name()))
		}
		return schema{"type": "string", "enum": names}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return schema{"type": "integer", "minimum": -1 << 31, "maximum": 1<<31 - 1}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return schema{"type": "integer", "minimum": 0, "maximum": 1<<32 - 1}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return schema{"type": []string{"string", "integer"}, "pattern": "^-?[0-9]{1,19}$"}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return schema{"type": []string{"string", "integer"}, "pattern": "^[0-9]{1,20}$", "minimum": 0}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return schema{"type": "number"}
	case protoreflect.BytesKind:
		return schema{"type": "string", "contentEncoding": "base64"}
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return b.message(f.Message())
	}
	return schema{"type": "string"}
}

// wellKnown are the messages whose JSON is not an object of their fields.
var wellKnown = map[protoreflect.FullName]func() schema{
	"google.protobuf.Timestamp": fixed(schema{"type": "string", "format": "date-time"}),
	"google.protobuf.Duration":  fixed(schema{"type": "string", "pattern": `^-?[0-9]+(\.[0-9]{1,9})?s$`}),
	"google.protobuf.FieldMask": fixed(schema{"type": "string"}),
	"google.protobuf.Struct":    fixed(schema{"type": "object"}),
	"google.protobuf.Value":     fixed(schema{}),
	"google.protobuf.ListValue": fixed(schema{"type": "array"}),
	"google.protobuf.Any": fixed(schema{"type": "object", "required": []string{"@type"},
		"properties": schema{"@type": schema{"type": "string"}}}),
	"google.protobuf.BoolValue":   wrapper("boolean"),
	"google.protobuf.StringValue": wrapper("string"),
	"google.protobuf.BytesValue":  wrapper("string"),
	"google.protobuf.FloatValue":  wrapper("number"),
	"google.protobuf.DoubleValue": wrapper("number"),
	"google.protobuf.Int32Value":  wrapper("integer"),
	"google.protobuf.UInt32Value": wrapper("integer"),
	"google.protobuf.Int64Value":  wrapper("string", "integer"),
	"google.protobuf.UInt64Value": wrapper("string", "integer"),
}

// fixed returns a function that returns a new copy of the schema each time, because callers add
// descriptions to it.
func fixed(s schema) func() schema {
	return func() schema { return maps.Clone(s) }
}

func wrapper(types ...string) func() schema {
	return fixed(schema{"type": append(types, "null")})
}
