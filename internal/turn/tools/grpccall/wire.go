package grpccall

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tgad/tgad/internal/onwire"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
)

// connect makes a connection, which dials at the first call on it. The passthrough resolver uses
// the address unchanged: a DNS resolver could bring a service config with a retry policy.
func (s *Server) connect() (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if s.opts.TLS != nil {
		creds = credentials.NewTLS(s.opts.TLS)
	}
	authority := s.opts.Authority
	if authority == "" && s.network == "unix" {
		authority = "localhost"
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return s.opts.Dial(ctx, s.network, s.addr)
		}),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithDisableHealthCheck(),
		grpc.WithUserAgent("tgad"),
	}
	if authority != "" {
		opts = append(opts, grpc.WithAuthority(authority))
	}
	return grpc.NewClient("passthrough:///"+s.addr, opts...)
}

// exchange makes one call, on a connection of its own. sent says whether its stream was begun:
// from then on the server may have the call, and err is a gRPC status.
func (s *Server) exchange(ctx context.Context, m protoreflect.MethodDescriptor, call runtime.Call, request []byte) (answer []byte, sent bool, err error) {
	conn, err := s.connect()
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = conn.Close() }() // the call is over, and an error of Close changes nothing
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, s.metadata(ctx, call)))
	defer cancel()

	path := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{}, path,
		grpc.ForceCodecV2(rawCodec{}),
		grpc.WaitForReady(false),
		grpc.MaxCallSendMsgSize(math.MaxInt32),
		grpc.MaxCallRecvMsgSize(min(4*s.opts.MaxAnswer, math.MaxInt32)))
	if err != nil {
		return nil, false, err // no stream was begun, so nothing is on the wire
	}
	// After Context was called, grpc-go does not begin the stream again, not even if the server
	// says that it refused it.
	_ = stream.Context()
	send := stream.SendMsg(request)
	err = stream.RecvMsg(&answer) // the message and the status after it
	if err != nil && send != nil && send != io.EOF {
		err = send // send has the reason; io.EOF would say that RecvMsg has it
	}
	return answer, true, err
}

const (
	keyMetadata     = "idempotency-key"
	traceMetadata   = "tgad-trace-id"
	callMetadata    = "tgad-tool-call-id"
	attemptMetadata = "tgad-attempt"
)

func isOwn(name string) bool {
	switch name {
	case keyMetadata, traceMetadata, callMetadata, attemptMetadata:
		return true
	}
	return false
}

func (s *Server) metadata(ctx context.Context, call runtime.Call) metadata.MD {
	md, key := metadata.New(s.opts.Metadata), httpcall.KeyText(call.Key)
	if s.opts.KeyMetadata != nil {
		if name := strings.ToLower(s.opts.KeyMetadata(call.Tool)); name != "" {
			md.Set(name, key)
		}
	}
	md.Set(keyMetadata, key)
	md.Set(traceMetadata, call.TraceID.String())
	md.Set(callMetadata, call.ToolCallID.String())
	md.Set(attemptMetadata, strconv.FormatUint(uint64(call.Attempt), 10))
	for name, value := range onwire.SpanHeaders(ctx) {
		md.Set(name, value)
	}
	return md
}

// rawCodec passes messages as bytes. Its name is proto, because the bytes are protobuf messages.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("message is a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("message is a %T", v)
	}
	*b = data.Materialize()
	return nil
}
