package grpccall

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
	"github.com/tgad/tgad/schemas/tga"
)

func TestCallByReflection(t *testing.T) {
	for _, how := range []reflects{reflectsV1, reflectsV1Alpha} {
		w := newWorld(t, how)
		var got metadata.MD
		w.handle = func(ctx context.Context, in *dynamicpb.Message) (proto.Message, error) {
			got, _ = metadata.FromIncomingContext(ctx)
			return in, nil
		}
		s := newServer(t, w.addr, Options{
			Metadata:    map[string]string{"authorization": "Bearer x"},
			KeyMetadata: func(tool string) string { return "X-Order-For-" + strings.ToLower(tool[len(tool)-3:]) },
		})
		place := runtime.WithSpanContext(context.Background(), runtime.SpanContext{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
		reply, err := s.Dispatch(place, aCall(`{"sku":"a","tags":["x","y"],"stock":{"s":{"color":"BLUE"}},"at":"2026-01-02T03:04:05.678Z","extra":{"k":[1,null]},"blob":"AAE=","price":0.1,"text":"t"}`))
		if what(reply, err) != "SUCCESS" || w.calls.Load() != 1 {
			t.Fatalf("%+v, %v, %d calls", reply, err, w.calls.Load())
		}
		const child = `{"sku":"","unitCents":"0","big":"0","tags":[],"stock":{},"color":"BLUE","blob":"","price":0,"count":0}`
		const want = `{"sku":"a","unitCents":"0","big":"0","tags":["x","y"],"stock":{"s":` + child + `},"text":"t","color":"RED","at":"2026-01-02T03:04:05.678Z","blob":"AAE=","price":0.1,"extra":{"k":[1,null]},"count":0}`
		if string(reply.Result) != want {
			t.Errorf("result\n%s, want\n%s", reply.Result, want)
		}
		for name, value := range map[string]string{
			"idempotency-key": "order-1", "x-order-for-buy": "order-1", "tgad-attempt": "1", "authorization": "Bearer x",
			"traceparent":   "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			"tgad-trace-id": aCall("").TraceID.String(), "tgad-tool-call-id": aCall("").ToolCallID.String(),
		} {
			if v := got.Get(name); len(v) != 1 || v[0] != value {
				t.Errorf("metadata %s: %q, want %q", name, v, value)
			}
		}
	}
}

// TestIntegersAreExact: as strings of digits, 64-bit integers arrive and return unchanged.
func TestIntegersAreExact(t *testing.T) {
	w := newWorld(t, reflectsV1)
	s := newServer(t, w.addr, Options{})
	for _, n := range []string{"9007199254740993", "-9223372036854775808", "9223372036854775807"} {
		var seen int64
		w.handle = func(_ context.Context, in *dynamicpb.Message) (proto.Message, error) {
			seen = in.Get(in.Descriptor().Fields().ByName("unit_cents")).Int()
			return in, nil
		}
		reply, err := s.Dispatch(context.Background(), aCall(`{"unitCents":"`+n+`","big":"18446744073709551615"}`))
		if err != nil || fmt.Sprint(seen) != n || !bytes.Contains(reply.Result, []byte(`"unitCents":"`+n+`"`)) ||
			!bytes.Contains(reply.Result, []byte(`"big":"18446744073709551615"`)) {
			t.Errorf("%s arrived as %d and came back as %s, %v", n, seen, reply.Result, err)
		}
	}
	// They also arrive as JSON numbers.
	if _, err := s.Dispatch(context.Background(), aCall(`{"unitCents":9007199254740993}`)); err != nil {
		t.Error(err)
	}
	for _, args := range []string{`{"unitCents":9007199254740993.5}`, `{"unitCents":"9223372036854775808"}`, `{"count":2147483648}`} {
		if got := what(s.Dispatch(context.Background(), aCall(args))); got != "not sent" {
			t.Errorf("%s: %s", args, got)
		}
	}
}

// TestAttemptsAreTheSameBytes: maps have no order, but a re-send must have the same bytes.
func TestAttemptsAreTheSameBytes(t *testing.T) {
	s := newServer(t, "127.0.0.1:1", Options{DescriptorSet: writeSet(t, parseFile(t, shop))})
	known, m, err := s.method(context.Background(), "shop.Shop/Buy")
	if err != nil {
		t.Fatal(err)
	}
	var first []byte
	for range 50 {
		b, err := known.encode(m, []byte(`{"stock":{"a":{},"b":{},"c":{},"d":{},"e":{},"f":{}}}`))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		}
		if !bytes.Equal(first, b) {
			t.Fatal("the same call has other bytes")
		}
	}
}

// TestStatuses checks all codes, for first and later attempts.
func TestStatuses(t *testing.T) {
	want := map[codes.Code][2]string{
		codes.Canceled:           {"doubt", "doubt"},
		codes.Unknown:            {"doubt", "doubt"},
		codes.InvalidArgument:    {"FAILURE TOOL_ERROR", "FAILURE TOOL_ERROR"},
		codes.DeadlineExceeded:   {"doubt", "doubt"},
		codes.NotFound:           {"FAILURE TOOL_ERROR", "doubt"},
		codes.AlreadyExists:      {"FAILURE TOOL_ERROR", "doubt"},
		codes.PermissionDenied:   {"DENIED TOOL_ERROR", "doubt"},
		codes.ResourceExhausted:  {"doubt", "doubt"},
		codes.FailedPrecondition: {"FAILURE TOOL_ERROR", "doubt"},
		codes.Aborted:            {"FAILURE TOOL_ERROR", "doubt"},
		codes.OutOfRange:         {"FAILURE TOOL_ERROR", "doubt"},
		codes.Unimplemented:      {"DENIED TOOL_ERROR", "doubt"},
		codes.Internal:           {"doubt", "doubt"},
		codes.Unavailable:        {"doubt", "doubt"},
		codes.DataLoss:           {"doubt", "doubt"},
		codes.Unauthenticated:    {"DENIED TOOL_ERROR", "doubt"},
		99:                       {"doubt", "doubt"},
	}
	if len(want) != len(defaults) { // all but OK, plus one that does not exist
		t.Fatalf("%d rows for %d codes", len(want), len(defaults))
	}
	w := newWorld(t, reflectsV1)
	s := newServer(t, w.addr, Options{})
	for code, row := range want {
		w.handle = func(context.Context, *dynamicpb.Message) (proto.Message, error) {
			return nil, status.Error(code, "said no")
		}
		for i, want := range row {
			before := w.calls.Load()
			call := aCall(`{}`)
			call.Attempt = uint32(i + 1)
			reply, err := s.Dispatch(context.Background(), call)
			if got := what(reply, err); got != want || w.calls.Load() != before+1 {
				t.Errorf("%v, attempt %d: %s (%v), want %s; %d calls", code, call.Attempt, got, err, want, w.calls.Load()-before)
			}
			if err == nil && (!reply.Class.Agree(reply.Status) || !strings.Contains(reply.ErrorMessage, "said no") || !bytes.Contains(reply.Result, []byte(`"message":"said no"`))) {
				t.Errorf("%v, attempt %d: %+v %s", code, call.Attempt, reply, reply.Result)
			}
			if err != nil && !strings.Contains(err.Error(), "said no") {
				t.Errorf("%v, attempt %d: %v", code, call.Attempt, err)
			}
		}
	}
}

func TestOperatorsStatuses(t *testing.T) {
	w := newWorld(t, reflectsV1)
	s := newServer(t, w.addr, Options{Statuses: map[codes.Code]httpcall.Outcome{
		codes.Unknown: httpcall.Failed, codes.ResourceExhausted: httpcall.NotExecuted,
		codes.AlreadyExists: httpcall.Succeeded, codes.NotFound: httpcall.InDoubt,
	}})
	for _, c := range []struct {
		code    codes.Code
		attempt uint32
		want    string
		class   ledger.Class
	}{
		{codes.Unknown, 1, "FAILURE TOOL_ERROR", ledger.ClassPermanent},
		{codes.ResourceExhausted, 1, "FAILURE RATE_LIMITED", ledger.ClassRetryable},
		{codes.ResourceExhausted, 2, "not sent", ledger.ClassNone},
		{codes.AlreadyExists, 2, "SUCCESS", ledger.ClassNone},
		{codes.NotFound, 1, "doubt", ledger.ClassNone},
	} {
		w.handle = func(context.Context, *dynamicpb.Message) (proto.Message, error) {
			return nil, status.Error(c.code, "x")
		}
		call := aCall(`{}`)
		call.Attempt = c.attempt
		reply, err := s.Dispatch(context.Background(), call)
		if got := what(reply, err); got != c.want || reply.Class != c.class {
			t.Errorf("%v, attempt %d: %s %v, want %s %v", c.code, c.attempt, got, reply.Class, c.want, c.class)
		}
	}
}

func TestNotSent(t *testing.T) {
	w := newWorld(t, reflectsV1)
	mute := newWorld(t, noReflection)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	good := newServer(t, w.addr, Options{})
	set := writeSet(t, parseFile(t, shop))
	for _, c := range []struct {
		name string
		ctx  context.Context
		s    *Server
		tool string
		args string
		key  string
		code tga.Code
	}{
		{"nobody listens", context.Background(), newServer(t, closed.Addr().String(), Options{DescriptorSet: set}), "shop.Shop/Buy", `{}`, "k", tga.ToolError},
		{"nobody to ask", context.Background(), newServer(t, closed.Addr().String(), Options{}), "shop.Shop/Buy", `{}`, "k", tga.ToolError},
		{"no reflection", context.Background(), newServer(t, mute.addr, Options{}), "shop.Shop/Buy", `{}`, "k", tga.ToolError},
		{"no TLS there", context.Background(), newServer(t, w.addr, Options{DescriptorSet: set, TLS: &tls.Config{}}), "shop.Shop/Buy", `{}`, "k", tga.ToolError},
		{"context ended", ended, newServer(t, w.addr, Options{DescriptorSet: set}), "shop.Shop/Buy", `{}`, "k", tga.ToolError},
		{"no service", context.Background(), good, "shop.Shopp/Buy", `{}`, "k", tga.NotFound},
		{"no method", context.Background(), good, "shop.Shop/Sell", `{}`, "k", tga.NotFound},
		{"a message", context.Background(), good, "shop.Item/Buy", `{}`, "k", tga.NotFound},
		{"no slash", context.Background(), good, "shop.Shop.Buy", `{}`, "k", tga.NotFound},
		{"other arguments", context.Background(), good, "shop.Shop/Buy", `{"sku":1}`, "k", tga.ValidationError},
		{"unknown member", context.Background(), good, "shop.Shop/Buy", `{"skuu":"a"}`, "k", tga.ValidationError},
		{"two of a oneof", context.Background(), good, "shop.Shop/Buy", `{"text":"a","child":{}}`, "k", tga.ValidationError},
		{"no key", context.Background(), good, "shop.Shop/Buy", `{}`, "", tga.ValidationError},
	} {
		call := aCall(c.args)
		call.Tool, call.Key = c.tool, c.key
		// Only mistakes of the caller are reported before anything is written.
		callers := c.code == tga.NotFound || c.code == tga.ValidationError && c.key != ""
		if err := c.s.Check(context.Background(), call); (err != nil) != callers || err != nil && tga.CodeOf(err) != c.code {
			t.Errorf("%s: check: %v", c.name, err)
		}
		reply, err := c.s.Dispatch(c.ctx, call)
		if got := what(reply, err); got != "not sent" || tga.CodeOf(err) != c.code {
			t.Errorf("%s: %s %v (%v), want not sent %v", c.name, got, tga.CodeOf(err), err, c.code)
		}
	}
	if n := w.calls.Load() + mute.calls.Load(); n != 0 {
		t.Errorf("%d calls were sent", n)
	}
}

func TestStreamingIsRefused(t *testing.T) {
	w := newWorld(t, reflectsV1)
	s := newServer(t, w.addr, Options{})
	for _, tool := range []string{"shop.Shop/Watch", "shop.Shop/Fill"} {
		call := aCall(`{}`)
		call.Tool = tool
		reply, err := s.Dispatch(context.Background(), call)
		if got := what(reply, err); got != "not sent" || !errors.Is(err, tga.ValidationError) || w.calls.Load() != 0 {
			t.Errorf("%s: %s, %v, %d calls", tool, got, err, w.calls.Load())
		}
	}
}

// TestAnswerLimit: an answer at the limit, one past it, and one past the limit for reading.
func TestAnswerLimit(t *testing.T) {
	w := newWorld(t, reflectsV1)
	empty := len(`{"sku":"","unitCents":"0","big":"0","tags":[],"stock":{},"color":"RED","blob":"","price":0,"count":0}`)
	const limit = 1000
	s := newServer(t, w.addr, Options{MaxAnswer: limit})
	sku := func(n int) string { return `{"sku":"` + strings.Repeat("x", n) + `"}` }
	reply, err := s.Dispatch(context.Background(), aCall(sku(limit-empty)))
	if what(reply, err) != "SUCCESS" || len(reply.Result) != limit || reply.Truncated {
		t.Errorf("at the limit: %s, %d bytes", what(reply, err), len(reply.Result))
	}
	reply, err = s.Dispatch(context.Background(), aCall(sku(limit-empty+1)))
	if what(reply, err) != "SUCCESS" || !reply.Truncated || reply.Result != nil || reply.ResultBytes != limit+1 || reply.Class != ledger.ClassCommitted {
		t.Errorf("one past it: %s, %+v", what(reply, err), reply)
	}
	// A message of 4·limit bytes is read, one more is not: tag and length take 3 bytes.
	if reply, err := s.Dispatch(context.Background(), aCall(sku(4*limit-3))); what(reply, err) != "SUCCESS" || !reply.Truncated {
		t.Errorf("a message of four times the limit: %s, %v", what(reply, err), err)
	}
	if reply, err := s.Dispatch(context.Background(), aCall(sku(4*limit-2))); what(reply, err) != "doubt" {
		t.Errorf("one past that: %s", what(reply, err))
	}
}

// TestAnswerThatCannotBeRead: the server says that it executed the call.
func TestAnswerThatCannotBeRead(t *testing.T) {
	w := newWorld(t, reflectsV1)
	other := parseFile(t, strings.Replace(shop, `name: "sku" number: 1 type: TYPE_STRING`, `name: "sku" number: 1 type: TYPE_MESSAGE type_name: ".shop.Item"`, 1))
	s := newServer(t, w.addr, Options{DescriptorSet: writeSet(t, other)})
	w.handle = func(_ context.Context, in *dynamicpb.Message) (proto.Message, error) {
		out := dynamicpb.NewMessage(in.Descriptor())
		out.Set(in.Descriptor().Fields().ByName("sku"), valueOf("no message"))
		return out, nil
	}
	reply, err := s.Dispatch(context.Background(), aCall(`{}`))
	if what(reply, err) != "ERROR TOOL_ERROR" || reply.Class != ledger.ClassCommitted || !bytes.Contains(reply.Result, []byte("no message")) || !reply.Class.Agree(reply.Status) {
		t.Errorf("%s, %+v", what(reply, err), reply)
	}
}

// TestUnknownFieldsAreTold, and the server is asked for its descriptors again.
func TestUnknownFieldsAreTold(t *testing.T) {
	w := newWorld(t, reflectsV1)
	s := newServer(t, w.addr, Options{})
	older := parseFile(t, strings.Replace(shop, `field { name: "count" number: 13 type: TYPE_INT32 label: LABEL_OPTIONAL }`, ``, 1))
	current := w.files
	w.files = linked(t, older) // reflection sends this older file; the methods are of the newer one
	w.handle = func(_ context.Context, in *dynamicpb.Message) (proto.Message, error) {
		out := dynamicpb.NewMessage(in.Descriptor())
		out.Set(in.Descriptor().Fields().ByName("count"), valueOf(int32(7)))
		kid := dynamicpb.NewMessage(in.Descriptor())
		kid.Set(in.Descriptor().Fields().ByName("child"), valueOf(out.ProtoReflect()))
		return kid, nil
	}
	reply, err := s.Dispatch(context.Background(), aCall(`{}`))
	if what(reply, err) != "SUCCESS" || bytes.Contains(reply.Result, []byte("count")) || !strings.Contains(reply.Summary, "2 bytes") {
		t.Errorf("%s, %s, %q", what(reply, err), reply.Result, reply.Summary)
	}
	w.files = current
	reply, err = s.Dispatch(context.Background(), aCall(`{}`))
	if what(reply, err) != "SUCCESS" || !bytes.Contains(reply.Result, []byte(`"count":7`)) || strings.Contains(reply.Summary, "bytes") {
		t.Errorf("asked again: %s, %s, %q", what(reply, err), reply.Result, reply.Summary)
	}
}

// TestCancelledCallIsInDoubt: the server has the call, and nobody knows what it does.
func TestCancelledCallIsInDoubt(t *testing.T) {
	w := newWorld(t, reflectsV1)
	s := newServer(t, w.addr, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	w.handle = func(ctx context.Context, in *dynamicpb.Message) (proto.Message, error) {
		cancel()
		<-ctx.Done() // the server sees the cancellation
		return in, nil
	}
	if got := what(s.Dispatch(ctx, aCall(`{}`))); got != "doubt" || w.calls.Load() != 1 {
		t.Errorf("%s, %d calls", got, w.calls.Load())
	}
}

func TestTLS(t *testing.T) {
	lent := httptest.NewUnstartedServer(nil) // provides a certificate
	lent.StartTLS()
	defer lent.Close()
	roots := x509.NewCertPool()
	roots.AddCert(lent.Certificate())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{files: linked(t, parseFile(t, shop))}
	w.serve(t, l, reflectsV1, grpc.Creds(credentials.NewServerTLSFromCert(&lent.TLS.Certificates[0])))
	for want, config := range map[string]*tls.Config{"SUCCESS": {RootCAs: roots}, "not sent": {}} {
		if got := what(newServer(t, l.Addr().String(), Options{TLS: config}).Dispatch(context.Background(), aCall(`{}`))); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if w.calls.Load() != 1 {
		t.Errorf("%d calls", w.calls.Load())
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{files: linked(t, parseFile(t, shop))}
	w.serve(t, l, reflectsV1)
	if got := what(newServer(t, "unix:"+path, Options{}).Dispatch(context.Background(), aCall(`{}`))); got != "SUCCESS" {
		t.Error(got)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "set")
	if err := os.WriteFile(file, []byte("no descriptor set"), 0o600); err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, maxDescriptors+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		target string
		o      Options
	}{
		{"", Options{}}, {"host", Options{}}, {":80", Options{}}, {"host:", Options{}}, {"unix:relative", Options{}}, {"dns:///h:1", Options{DescriptorSet: "/nowhere"}},
		{"h:1", Options{MaxAnswer: -1}},
		{"h:1", Options{DescriptorSet: file}}, {"h:1", Options{DescriptorSet: big}}, {"h:1", Options{DescriptorSet: "/nowhere"}},
		{"h:1", Options{Metadata: map[string]string{"Upper": "x"}}},
		{"h:1", Options{Metadata: map[string]string{"grpc-timeout": "x"}}},
		{"h:1", Options{Metadata: map[string]string{"idempotency-key": "x"}}},
		{"h:1", Options{Metadata: map[string]string{"a": "x\n"}}},
		{"h:1", Options{Statuses: map[codes.Code]httpcall.Outcome{codes.OK: httpcall.Failed}}},
		{"h:1", Options{Statuses: map[codes.Code]httpcall.Outcome{17: httpcall.Failed}}},
		{"h:1", Options{Statuses: map[codes.Code]httpcall.Outcome{codes.Unknown: 0}}},
	} {
		if _, err := New(c.target, c.o); !errors.Is(err, tga.ValidationError) {
			t.Errorf("%q %+v: %v", c.target, c.o, err)
		}
	}
}

// writeSet writes a descriptor set of a file and what it imports.
func writeSet(t *testing.T, f *descriptorpb.FileDescriptorProto) string {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{f}}
	set.File = append(set.File, importsOf(t, f)...)
	raw, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, raw)
}

func write(t *testing.T, raw []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "set.binpb")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func toolNames(t *testing.T, s *Server) []string {
	t.Helper()
	list, err := s.ListTools(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list {
		if !json.Valid(tool.Definition) {
			t.Errorf("%s: %s", tool.Name, tool.Definition)
		}
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}
