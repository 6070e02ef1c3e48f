package grpccall

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/emptypb"
	_ "google.golang.org/protobuf/types/known/structpb"
	_ "google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop returns the file descriptor of the test's services, as protoc would make it.
const shop = `
name: "shop.proto" package: "shop" syntax: "proto3"
dependency: "google/protobuf/timestamp.proto" dependency: "google/protobuf/struct.proto"
enum_type { name: "Color" value { name: "RED" number: 0 } value { name: "BLUE" number: 1 } }
message_type { name: "Item"
  field { name: "sku" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "unit_cents" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "big" number: 3 type: TYPE_UINT64 label: LABEL_OPTIONAL }
  field { name: "tags" number: 4 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "stock" number: 5 type: TYPE_MESSAGE type_name: ".shop.Item.StockEntry" label: LABEL_REPEATED }
  field { name: "text" number: 6 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "child" number: 7 type: TYPE_MESSAGE type_name: ".shop.Item" label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "color" number: 8 type: TYPE_ENUM type_name: ".shop.Color" label: LABEL_OPTIONAL }
  field { name: "at" number: 9 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL }
  field { name: "blob" number: 10 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "price" number: 11 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "extra" number: 12 type: TYPE_MESSAGE type_name: ".google.protobuf.Struct" label: LABEL_OPTIONAL }
  field { name: "count" number: 13 type: TYPE_INT32 label: LABEL_OPTIONAL }
  oneof_decl { name: "kind" }
  nested_type { name: "StockEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".shop.Item" label: LABEL_OPTIONAL } }
}
service { name: "Shop"
  method { name: "Buy" input_type: ".shop.Item" output_type: ".shop.Item" }
  method { name: "Look" input_type: ".shop.Item" output_type: ".shop.Item" options { idempotency_level: NO_SIDE_EFFECTS } }
  method { name: "Watch" input_type: ".shop.Item" output_type: ".shop.Item" server_streaming: true }
  method { name: "Fill" input_type: ".shop.Item" output_type: ".shop.Item" client_streaming: true }
}
source_code_info {
  location { path: 6 path: 0 path: 2 path: 0 span: 1 span: 0 span: 1 leading_comments: " Buys one item.\n For money.\n" }
  location { path: 4 path: 0 path: 2 path: 1 span: 1 span: 0 span: 1 leading_comments: " What one costs.\n" }
}`

func parseFile(t *testing.T, text string) *descriptorpb.FileDescriptorProto {
	t.Helper()
	f := new(descriptorpb.FileDescriptorProto)
	if err := prototext.Unmarshal([]byte(text), f); err != nil {
		t.Fatal(err)
	}
	return f
}

// linked links a file with the descriptors that are built into this program.
func linked(t *testing.T, f *descriptorpb.FileDescriptorProto) *protoregistry.Files {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{File: append(importsOf(t, f), f)}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func importsOf(t *testing.T, f *descriptorpb.FileDescriptorProto) []*descriptorpb.FileDescriptorProto {
	t.Helper()
	var all []*descriptorpb.FileDescriptorProto
	for _, dep := range f.GetDependency() {
		fd, err := protoregistry.GlobalFiles.FindFileByPath(dep)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, protodesc.ToFileDescriptorProto(fd))
	}
	return all
}

func valueOf(v any) protoreflect.Value { return protoreflect.ValueOf(v) }

// world is a real gRPC server on loopback. It counts the calls that its methods got.
type world struct {
	addr  string
	files *protoregistry.Files
	calls atomic.Int32
	// ghosts are services that reflection lists and does not describe.
	ghosts   []string
	register func(*grpc.Server) // nil adds nothing
	// handle is what each method does; nil answers with the request.
	handle func(ctx context.Context, in *dynamicpb.Message) (proto.Message, error)
}

type reflects int

const (
	noReflection reflects = iota
	reflectsV1
	reflectsV1Alpha
)

func newWorld(t *testing.T, how reflects, ghosts ...string) *world {
	t.Helper()
	return started(t, &world{files: linked(t, parseFile(t, shop)), ghosts: ghosts}, how)
}

// newWorldWith starts a world that register adds something to.
func newWorldWith(t *testing.T, register func(*grpc.Server)) *world {
	t.Helper()
	return started(t, &world{files: linked(t, parseFile(t, shop)), register: register}, noReflection)
}

func started(t *testing.T, w *world, how reflects) *world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = l.Addr().String()
	w.serve(t, l, how)
	return w
}

func (w *world) serve(t *testing.T, l net.Listener, how reflects, opts ...grpc.ServerOption) {
	s := grpc.NewServer(opts...)
	d, err := w.files.FindDescriptorByName("shop.Shop")
	if err != nil {
		t.Fatal(err)
	}
	service := d.(protoreflect.ServiceDescriptor)
	desc := &grpc.ServiceDesc{ServiceName: "shop.Shop", HandlerType: (*any)(nil)}
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		if m.IsStreamingClient() || m.IsStreamingServer() {
			desc.Streams = append(desc.Streams, grpc.StreamDesc{StreamName: string(m.Name()), ClientStreams: true, ServerStreams: true,
				Handler: func(any, grpc.ServerStream) error { w.calls.Add(1); return nil }})
			continue
		}
		desc.Methods = append(desc.Methods, grpc.MethodDesc{MethodName: string(m.Name()),
			Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				in := dynamicpb.NewMessage(m.Input())
				if err := decode(in); err != nil {
					return nil, err
				}
				w.calls.Add(1)
				if w.handle != nil {
					return w.handle(ctx, in)
				}
				return in, nil
			}})
	}
	s.RegisterService(desc, nil)
	for _, name := range w.ghosts {
		s.RegisterService(&grpc.ServiceDesc{ServiceName: name, HandlerType: (*any)(nil)}, nil)
	}
	if w.register != nil {
		w.register(s)
	}
	o := reflection.ServerOptions{Services: s, DescriptorResolver: w, ExtensionResolver: protoregistry.GlobalTypes}
	switch how {
	case reflectsV1:
		registerV1(s, o)
	case reflectsV1Alpha:
		registerV1Alpha(s, o)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The world's own files take precedence over those of the program.

func (w *world) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if fd, err := w.files.FindFileByPath(path); err == nil {
		return fd, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

func (w *world) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d, err := w.files.FindDescriptorByName(name); err == nil {
		return d, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}

func newServer(t *testing.T, addr string, o Options) *Server {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := New(addr, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func aCall(args string) runtime.Call {
	return runtime.Call{
		TraceID: tga.ID{6: 0x70, 8: 0x80, 15: 1}, ToolCallID: tga.ID{6: 0x70, 8: 0x80, 15: 2},
		Attempt: 1, Server: "shop", Tool: "shop.Shop/Buy", Args: []byte(args), Key: "order-1",
	}
}

// what returns the result of a dispatch: "STATUS CODE", "not sent" or "doubt".
func what(reply runtime.Reply, err error) string {
	switch {
	case errors.Is(err, runtime.ErrNotSent):
		return "not sent"
	case err != nil:
		return "doubt"
	}
	return strings.TrimSpace(reply.Status + " " + reply.ErrorCode)
}
