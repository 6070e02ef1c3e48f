package grpccall

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// maxDescriptors bounds the descriptors that a server sends, in bytes; maxFiles, in files.
const (
	maxDescriptors = 16 << 20
	maxFiles       = 10_000
)

// types are the services of a server and the messages that they use.
type types struct {
	files    *protoregistry.Files
	messages *dynamicpb.Types // for the content of an Any
	services []protoreflect.FullName
}

// newTypes links a set of files. A missing import is accepted: servers leave out files that only
// options need. A missing type is noticed when a method that uses it is requested.
func newTypes(set *descriptorpb.FileDescriptorSet, services []protoreflect.FullName) (*types, error) {
	files, err := (protodesc.FileOptions{AllowUnresolvable: true}).NewFiles(set)
	if err != nil {
		return nil, err
	}
	return &types{files: files, messages: dynamicpb.NewTypes(files), services: services}, nil
}

// readDescriptorSet reads a FileDescriptorSet.
func readDescriptorSet(path string) (known *types, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxDescriptors+1))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	if len(raw) > maxDescriptors {
		return nil, tga.Errorf(tga.LimitExceeded, "%s: more than %d bytes", path, maxDescriptors)
	}
	set := new(descriptorpb.FileDescriptorSet)
	if err := proto.Unmarshal(raw, set); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var services []protoreflect.FullName
	for _, file := range set.GetFile() {
		for _, s := range file.GetService() {
			name := protoreflect.FullName(s.GetName())
			if p := file.GetPackage(); p != "" {
				name = protoreflect.FullName(p + "." + s.GetName())
			}
			services = append(services, name)
		}
	}
	if len(services) == 0 {
		return nil, fmt.Errorf("%s: no service", path)
	}
	if known, err = newTypes(set, services); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return known, nil
}

// method returns the method of a tool, and the types it belongs to.
func (s *Server) method(ctx context.Context, tool string) (*types, protoreflect.MethodDescriptor, error) {
	known, fresh, err := s.types(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	m, err := known.method(tool)
	if err == nil || fresh || s.fixed {
		return known, m, err
	}
	// The known types may be older than the server.
	if known, _, err = s.types(ctx, true); err != nil {
		return nil, nil, err
	}
	m, err = known.method(tool)
	return known, m, err
}

// method finds a unary method: NOT_FOUND, or VALIDATION_ERROR for a method that cannot be called.
func (k *types) method(tool string) (protoreflect.MethodDescriptor, error) {
	service, name, ok := strings.Cut(tool, "/")
	if !ok {
		return nil, tga.Errorf(tga.NotFound, "tool %q: want package.Service/Method", tool)
	}
	d, err := k.files.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, tga.Errorf(tga.NotFound, "tool %q: no such service", tool)
	}
	sd, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, tga.Errorf(tga.NotFound, "tool %q: %s is no service", tool, service)
	}
	m := sd.Methods().ByName(protoreflect.Name(name))
	if m == nil {
		return nil, tga.Errorf(tga.NotFound, "tool %q: the service has no such method", tool)
	}
	return m, callable(m)
}

// callable returns why a method cannot be called, nil if it can.
func callable(m protoreflect.MethodDescriptor) error {
	if m.IsStreamingClient() || m.IsStreamingServer() {
		return tga.Errorf(tga.ValidationError, "%s streams: only unary methods are tools", m.FullName())
	}
	for _, md := range []protoreflect.MessageDescriptor{m.Input(), m.Output()} {
		if hole := missing(md, map[protoreflect.FullName]bool{}); hole != "" {
			return tga.Errorf(tga.ValidationError, "%s: the descriptor of %s is missing", m.FullName(), hole)
		}
	}
	return nil
}

// missing returns the name of a type that d needs and that is not known, "" if there is none.
func missing(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) protoreflect.FullName {
	if d.IsPlaceholder() {
		return d.FullName()
	}
	if seen[d.FullName()] {
		return ""
	}
	seen[d.FullName()] = true
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if e := f.Enum(); e != nil && e.IsPlaceholder() {
			return e.FullName()
		}
		if m := f.Message(); m != nil {
			if hole := missing(m, seen); hole != "" {
				return hole
			}
		}
	}
	return ""
}

// encode returns the request's bytes, which are the same for every attempt.
func (k *types) encode(m protoreflect.MethodDescriptor, args []byte) ([]byte, error) {
	msg := dynamicpb.NewMessage(m.Input())
	if err := (protojson.UnmarshalOptions{Resolver: k.messages}).Unmarshal(args, msg); err != nil {
		return nil, fmt.Errorf("arguments are no %s: %w", m.Input().FullName(), err)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(msg)
}

// success makes a reply of an answer with status OK.
func (s *Server) success(known *types, m protoreflect.MethodDescriptor, raw []byte) runtime.Reply {
	result, unknown, err := known.decode(m, raw)
	if err != nil {
		// The server says that it did what was asked; only its answer cannot be read.
		s.forget(known)
		return runtime.Reply{
			Status: tga.StatusError, Class: ledger.ClassCommitted, Result: raw,
			ErrorCode:    string(tga.ToolError),
			ErrorMessage: clip.Runes(fmt.Sprintf("answer of %d bytes is no %s: %v", len(raw), m.Output().FullName(), err), maxMessage),
		}
	}
	if len(result) > s.opts.MaxAnswer {
		return runtime.Reply{
			Status: tga.StatusSuccess, Class: ledger.ClassCommitted, Truncated: true,
			ResultBytes: int64(len(result)), ResultDigest: tga.Sum(result),
			Summary: fmt.Sprintf("gRPC OK; the answer of %d bytes is over the limit of %d", len(result), s.opts.MaxAnswer),
		}
	}
	reply := runtime.Reply{Status: tga.StatusSuccess, Summary: "gRPC OK", Result: result}
	if unknown > 0 {
		s.forget(known)
		reply.Summary = fmt.Sprintf("gRPC OK; %d bytes of fields that the descriptors do not know are left out", unknown)
	}
	return reply
}

// decode returns an answer as JSON, and the number of its bytes that no descriptor knows. It
// writes fields without a value too: for a reader without the descriptors, a balance of 0 differs
// from no balance.
func (k *types) decode(m protoreflect.MethodDescriptor, raw []byte) (result []byte, unknown int, err error) {
	msg := dynamicpb.NewMessage(m.Output())
	if err := (proto.UnmarshalOptions{Resolver: k.messages}).Unmarshal(raw, msg); err != nil {
		return nil, 0, err
	}
	pretty, err := protojson.MarshalOptions{Resolver: k.messages, EmitDefaultValues: true}.Marshal(msg)
	if err != nil {
		return nil, 0, err
	}
	// protojson adds random spaces, so that nobody relies on its bytes.
	var b bytes.Buffer
	if err := json.Compact(&b, pretty); err != nil {
		return nil, 0, err
	}
	return b.Bytes(), unknownBytes(msg), nil
}

func unknownBytes(m protoreflect.Message) int {
	n := len(m.GetUnknown())
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					n += unknownBytes(v.Message())
					return true
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				n += unknownBytes(v.List().Get(i).Message())
			}
		default:
			n += unknownBytes(v.Message())
		}
		return true
	})
	return n
}
