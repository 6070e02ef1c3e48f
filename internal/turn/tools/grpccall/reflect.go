package grpccall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/schemas/tga"
)

// reflections are the methods by which servers describe themselves. Both use the same messages on
// the wire.
var reflections = [...]string{
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
}

// types returns the known types of the server. It asks the server if none are known or again is
// set. fresh says that the server was asked just now.
func (s *Server) types(ctx context.Context, again bool) (known *types, fresh bool, err error) {
	s.mu.Lock()
	known = s.known
	s.mu.Unlock()
	if known != nil && (!again || s.fixed) {
		return known, false, nil
	}
	select {
	case s.loading <- struct{}{}:
		defer func() { <-s.loading }()
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	s.mu.Lock()
	now := s.known
	s.mu.Unlock()
	if now != nil && now != known {
		return now, true, nil // another caller asked meanwhile
	}
	if known, err = s.reflect(ctx); err != nil {
		return nil, false, fmt.Errorf("server reflection: %w", err)
	}
	s.mu.Lock()
	s.known = known
	s.mu.Unlock()
	return known, true, nil
}

// forget makes the next call ask the server again.
func (s *Server) forget(known *types) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == known && !s.fixed {
		s.known = nil
	}
}

// reflect asks the server for its services and their types.
func (s *Server) reflect(ctx context.Context) (*types, error) {
	conn, err := s.connect()
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // every request was answered or has failed
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, metadata.New(s.opts.Metadata)))
	defer cancel()
	var known *types
	for _, path := range reflections {
		stream, serr := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, path,
			grpc.WaitForReady(false), grpc.MaxCallRecvMsgSize(maxDescriptors))
		if serr != nil {
			return nil, serr
		}
		a := &asker{stream: stream, files: map[string]*descriptorpb.FileDescriptorProto{}}
		if known, err = s.describe(a); status.Code(err) != codes.Unimplemented {
			return known, err
		}
	}
	return nil, fmt.Errorf("the server has none; give a descriptor set: %w", err)
}

// describe asks for every service and the files that it needs.
func (s *Server) describe(a *asker) (*types, error) {
	got, err := a.ask(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_ListServices{}})
	if err != nil {
		return nil, err
	}
	var services []protoreflect.FullName
	var last error
	for _, sv := range got.GetListServicesResponse().GetService() {
		name := protoreflect.FullName(sv.GetName())
		if !name.IsValid() || strings.HasPrefix(string(name), "grpc.reflection.") {
			continue
		}
		err := a.symbol(string(name))
		var refused *refusal
		if errors.As(err, &refused) {
			s.log.Warn("gRPC server lists a service that it does not describe", "addr", s.addr, "service", name, "error", err)
			last = err
			continue
		}
		if err != nil {
			return nil, err
		}
		services = append(services, name)
	}
	if len(services) == 0 {
		if last == nil {
			last = tga.Errorf(tga.NotFound, "the server lists no service")
		}
		return nil, last
	}
	if err := a.imports(); err != nil {
		return nil, err
	}
	set := new(descriptorpb.FileDescriptorSet)
	for _, f := range a.files {
		set.File = append(set.File, f)
	}
	slices.SortFunc(set.File, func(x, y *descriptorpb.FileDescriptorProto) int { return strings.Compare(x.GetName(), y.GetName()) })
	return newTypes(set, services)
}

// asker is a conversation with a server about its descriptors.
type asker struct {
	stream grpc.ClientStream
	files  map[string]*descriptorpb.FileDescriptorProto
	bytes  int
}

// refusal is the server's answer that it does not have what was requested.
type refusal struct {
	code codes.Code
	text string
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %s", r.code, r.text) }

func (a *asker) ask(q *reflection.ServerReflectionRequest) (*reflection.ServerReflectionResponse, error) {
	got := new(reflection.ServerReflectionResponse)
	if err := a.stream.SendMsg(q); err != nil {
		// io.EOF: the stream has ended, and RecvMsg says why.
		if recv := a.stream.RecvMsg(got); recv != nil {
			err = recv
		}
		return nil, err
	}
	if err := a.stream.RecvMsg(got); err != nil {
		return nil, err
	}
	if e := got.GetErrorResponse(); e != nil {
		return nil, &refusal{codes.Code(e.GetErrorCode()), clip.Runes(e.GetErrorMessage(), maxMessage)}
	}
	for _, raw := range got.GetFileDescriptorResponse().GetFileDescriptorProto() {
		f := new(descriptorpb.FileDescriptorProto)
		if err := proto.Unmarshal(raw, f); err != nil {
			return nil, fmt.Errorf("descriptor of %d bytes: %w", len(raw), err)
		}
		if a.files[f.GetName()] == nil {
			a.bytes += len(raw)
		}
		a.files[f.GetName()] = f
		if a.bytes > maxDescriptors || len(a.files) > maxFiles {
			return nil, tga.Errorf(tga.LimitExceeded, "descriptors of more than %d bytes or %d files", maxDescriptors, maxFiles)
		}
	}
	return got, nil
}

// symbol gets the file of a name.
func (a *asker) symbol(name string) error {
	_, err := a.ask(&reflection.ServerReflectionRequest{
		MessageRequest: &reflection.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}})
	return err
}

// imports gets the files that files import, until no available file is missing: from the server,
// or, if the server does not have a file, from those that are linked into this program.
func (a *asker) imports() error {
	given := map[string]bool{}
	for {
		var lack []string
		for _, f := range a.files {
			for _, dep := range f.GetDependency() {
				if a.files[dep] == nil && !given[dep] {
					given[dep] = true
					lack = append(lack, dep)
				}
			}
		}
		if len(lack) == 0 {
			return nil
		}
		slices.Sort(lack)
		for _, dep := range lack {
			_, err := a.ask(&reflection.ServerReflectionRequest{
				MessageRequest: &reflection.ServerReflectionRequest_FileByFilename{FileByFilename: dep}})
			var refused *refusal
			if err != nil && !errors.As(err, &refused) {
				return err
			}
			if a.files[dep] != nil {
				continue
			}
			if fd, err := protoregistry.GlobalFiles.FindFileByPath(dep); err == nil {
				a.files[dep] = protodesc.ToFileDescriptorProto(fd)
			}
		}
	}
}
