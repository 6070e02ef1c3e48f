package grpccall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
	v1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	v1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/tgad/tgad/schemas/tga"
)

func registerV1(s *grpc.Server, o reflection.ServerOptions) {
	v1.RegisterServerReflectionServer(s, reflection.NewServerV1(o))
}

func registerV1Alpha(s *grpc.Server, o reflection.ServerOptions) {
	v1alpha.RegisterServerReflectionServer(s, reflection.NewServer(o))
}

// terse is a server whose reflection sends one file per request, as servers in other languages
// do. extra files are sent with the first.
type terse struct {
	v1.UnimplementedServerReflectionServer
	files map[string]*descriptorpb.FileDescriptorProto
	extra [][]byte
	asked []string
}

func (s *terse) ServerReflectionInfo(stream grpc.BidiStreamingServer[v1.ServerReflectionRequest, v1.ServerReflectionResponse]) error {
	for {
		q, err := stream.Recv()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		a := &v1.ServerReflectionResponse{}
		give := func(name string, more ...[]byte) {
			s.asked = append(s.asked, name)
			f := s.files[name]
			if f == nil {
				a.MessageResponse = &v1.ServerReflectionResponse_ErrorResponse{ErrorResponse: &v1.ErrorResponse{ErrorCode: int32(codes.NotFound), ErrorMessage: "no " + name}}
				return
			}
			raw, err := proto.Marshal(f)
			if err != nil {
				panic(err)
			}
			a.MessageResponse = &v1.ServerReflectionResponse_FileDescriptorResponse{FileDescriptorResponse: &v1.FileDescriptorResponse{FileDescriptorProto: append([][]byte{raw}, more...)}}
		}
		switch q := q.MessageRequest.(type) {
		case *v1.ServerReflectionRequest_ListServices:
			a.MessageResponse = &v1.ServerReflectionResponse_ListServicesResponse{ListServicesResponse: &v1.ListServiceResponse{Service: []*v1.ServiceResponse{{Name: "shop.Shop"}}}}
		case *v1.ServerReflectionRequest_FileContainingSymbol:
			give("shop.proto", s.extra...)
		case *v1.ServerReflectionRequest_FileByFilename:
			give(q.FileByFilename)
		}
		if err := stream.Send(a); err != nil {
			return err
		}
	}
}

// newTerse starts a server whose reflection is s.
func newTerse(t *testing.T, s *terse) *world {
	t.Helper()
	return newWorldWith(t, func(g *grpc.Server) { v1.RegisterServerReflectionServer(g, s) })
}

// TestImportsAreAskedFor one by one. Files that the server does not have are taken from this
// program.
func TestImportsAreAskedFor(t *testing.T) {
	shop := parseFile(t, shop)
	s := &terse{files: map[string]*descriptorpb.FileDescriptorProto{"shop.proto": shop}}
	for _, f := range importsOf(t, shop) {
		if f.GetName() != "google/protobuf/timestamp.proto" {
			s.files[f.GetName()] = f
		}
	}
	w := newTerse(t, s)
	reply, err := newServer(t, w.addr, Options{}).Dispatch(context.Background(), aCall(`{"at":"2026-01-01T00:00:00Z","extra":{"a":1}}`))
	if what(reply, err) != "SUCCESS" || w.calls.Load() != 1 {
		t.Errorf("%s, %v", what(reply, err), err)
	}
	if want := []string{"shop.proto", "google/protobuf/struct.proto", "google/protobuf/timestamp.proto"}; !slices.Equal(s.asked, want) {
		t.Errorf("asked for %v, want %v", s.asked, want)
	}
}

// TestDescriptorLimits: the permitted number of files and one more, and the same for bytes.
func TestDescriptorLimits(t *testing.T) {
	shop := parseFile(t, shop)
	file := func(i, size int) []byte {
		raw, err := proto.Marshal(&descriptorpb.FileDescriptorProto{Name: proto.String(fmt.Sprintf("f%d.proto", i)), Package: proto.String(string(make([]byte, size)))})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	list := func(extra [][]byte) error {
		s := &terse{files: map[string]*descriptorpb.FileDescriptorProto{"shop.proto": shop}, extra: extra}
		_, err := newServer(t, newTerse(t, s).addr, Options{}).ListTools(context.Background())
		return err
	}
	var extra [][]byte
	for i := range maxFiles - 1 { // plus the shop's file
		extra = append(extra, file(i, 0))
	}
	if err := list(extra); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if err := list(append(extra, file(len(extra), 0))); !errors.Is(err, tga.LimitExceeded) {
		t.Errorf("one past it: %v", err)
	}
	if err := list([][]byte{file(0, maxDescriptors)}); err == nil {
		t.Error("descriptors of more bytes than are read")
	}
	if err := list([][]byte{[]byte("\xff")}); err == nil {
		t.Error("a descriptor that is none")
	}
}
