package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func aCall(tool string, attempt uint32) runtime.Call {
	return runtime.Call{TraceID: tga.ID{6: 0x70, 8: 0x80, 15: 1}, Attempt: attempt, Server: DefaultFunctions, Tool: tool,
		Args: []byte(`{"n":9007199254740993}`), Key: "order-1"}
}

// outcome returns the result of a dispatch: "STATUS CODE", "not sent" or "doubt".
func outcome(reply runtime.Reply, err error) string {
	switch {
	case errors.Is(err, runtime.ErrNotSent):
		return "not sent"
	case err != nil:
		return "doubt"
	}
	return strings.TrimSpace(reply.Status + " " + reply.ErrorCode)
}

func TestFunctionOutcomes(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	fn := func(f func(ctx context.Context) (json.RawMessage, error)) Function {
		return Function{Call: func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) { return f(ctx) }}
	}
	f := Functions{
		"echo": {Call: func(_ context.Context, args json.RawMessage) (json.RawMessage, error) {
			clone := slices.Clone(args)
			clear(args) // must not change the bytes of the call, which the log has
			return clone, nil
		}},
		"panics": fn(func(context.Context) (json.RawMessage, error) { panic("at the disco") }),
		"goexit": fn(func(context.Context) (json.RawMessage, error) { goruntime.Goexit(); return nil, nil }),
		"fails":  fn(func(context.Context) (json.RawMessage, error) { return nil, errors.New("no funds") }),
		"coded":  fn(func(context.Context) (json.RawMessage, error) { return nil, tga.Errorf(tga.RateLimited, "busy") }),
		"unsent": fn(func(context.Context) (json.RawMessage, error) {
			return nil, fmt.Errorf("closed: %w", runtime.ErrNotSent)
		}),
		"garbage": fn(func(context.Context) (json.RawMessage, error) { return json.RawMessage(`{"a":`), nil }),
		"nothing": fn(func(context.Context) (json.RawMessage, error) { return nil, nil }),
		"null":    fn(func(context.Context) (json.RawMessage, error) { return json.RawMessage(`null`), nil }),
		"nil":     {},
	}
	for _, c := range []struct {
		tool    string
		attempt uint32
		want    string
		class   ledger.Class
		says    string
	}{
		{"echo", 1, "SUCCESS", ledger.ClassNone, `{"n":9007199254740993}`},
		{"null", 1, "SUCCESS", ledger.ClassNone, "null"},
		{"panics", 1, "FAILURE TOOL_ERROR", ledger.ClassNone, "panic: at the disco"},
		{"goexit", 1, "FAILURE TOOL_ERROR", ledger.ClassNone, "panic: <nil>"},
		{"fails", 1, "FAILURE TOOL_ERROR", ledger.ClassNone, "no funds"},
		{"coded", 1, "FAILURE RATE_LIMITED", ledger.ClassNone, "busy"},
		{"garbage", 1, "ERROR TOOL_ERROR", ledger.ClassCommitted, "no JSON"},
		{"nothing", 1, "ERROR TOOL_ERROR", ledger.ClassCommitted, "no JSON"},
		{"unsent", 1, "not sent", ledger.ClassNone, "closed"},
		{"unsent", 2, "not sent", ledger.ClassNone, "closed"},
		{"nil", 1, "not sent", ledger.ClassNone, "no such function"},
		{"ghost", 1, "not sent", ledger.ClassNone, "no such function"},
		// A later attempt's failure says nothing about an earlier one.
		{"fails", 2, "doubt", ledger.ClassNone, "no funds"},
		{"panics", 2, "doubt", ledger.ClassNone, "at the disco"},
	} {
		call := aCall(c.tool, c.attempt)
		reply, err := f.Dispatch(context.Background(), call)
		said := string(reply.Result) + reply.ErrorMessage
		if err != nil {
			said = err.Error()
		}
		if got := outcome(reply, err); got != c.want || reply.Class != c.class || !strings.Contains(said, c.says) {
			t.Errorf("%s, attempt %d: %q %v %q, want %q %v %q", c.tool, c.attempt, got, reply.Class, said, c.want, c.class, c.says)
		}
		if !bytes.Equal(call.Args, aCall("", 1).Args) {
			t.Errorf("%s changed the call's arguments", c.tool)
		}
		if reply.Class != ledger.ClassNone && !reply.Class.Agree(reply.Status) {
			t.Errorf("%s: class %v of status %s", c.tool, reply.Class, reply.Status)
		}
	}
	if got := outcome(f.Dispatch(gone, aCall("echo", 1))); got != "not sent" {
		t.Errorf("after the context's end: %s", got)
	}
}

// TestFunctionThatOutlivesItsContext: nobody knows what the function does afterwards.
func TestFunctionThatOutlivesItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	finish := make(chan struct{})
	ended := make(chan struct{})
	f := Functions{
		"hangs": {Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
			defer close(ended)
			cancel()
			<-finish
			return json.RawMessage(`1`), nil
		}},
		"stops": {Call: func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			return nil, ctx.Err()
		}},
	}
	if got := outcome(f.Dispatch(ctx, aCall("hangs", 1))); got != "doubt" {
		t.Errorf("a function that hangs: %s", got)
	}
	close(finish)
	<-ended
	late, stop := context.WithCancel(context.Background())
	r := returned{err: context.Canceled}
	stop()
	if got := outcome(r.reply(late, aCall("stops", 1), MaxOutput)); got != "doubt" {
		t.Errorf("a function that was cut short: %s", got)
	}
	// An answer counts even if the context has ended meanwhile.
	r = returned{output: json.RawMessage(`1`)}
	if got := outcome(r.reply(late, aCall("stops", 1), MaxOutput)); got != "SUCCESS" {
		t.Errorf("an answer after the end: %s", got)
	}
}

func TestFunctionOutputLimit(t *testing.T) {
	const limit = 10
	at, over := json.RawMessage(`"12345678"`), json.RawMessage(`"123456789"`)
	r, err := returned{output: at}.reply(context.Background(), aCall("f", 1), limit)
	if err != nil || r.Truncated || !bytes.Equal(r.Result, at) {
		t.Errorf("at the limit: %+v, %v", r, err)
	}
	r, err = returned{output: over}.reply(context.Background(), aCall("f", 1), limit)
	if err != nil || !r.Truncated || r.Result != nil || r.ResultBytes != limit+1 || r.ResultDigest != tga.Sum(over) || !r.Class.Agree(r.Status) {
		t.Errorf("one past it: %+v, %v", r, err)
	}
}

func TestFunctionsAreResolved(t *testing.T) {
	none := func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil }
	f := Functions{
		"b": {Description: "does b", InputSchema: json.RawMessage(`{"required":["x"]}`), Call: none},
		"a": {Call: none},
	}
	r := newResolver(t, Options{Servers: map[string]Lister{DefaultFunctions: f}})
	tools, warnings := resolve(t, r,
		turn.ToolSpec{Name: "b", Transport: turn.OverFunction},
		turn.ToolSpec{Transport: turn.OverFunction, Discover: true},
		turn.ToolSpec{Name: "c", Transport: turn.OverFunction})
	if !slices.Equal(namesOf(tools), []string{"b", "a"}) || !slices.Equal(codes(warnings), []string{"c NOT_FOUND"}) {
		t.Fatal(namesOf(tools), warnings)
	}
	if tools[0].Description != "does b" || tools[0].Server != DefaultFunctions || string(tools[0].InputSchema) != `{"required":["x"],"type":"object"}` {
		t.Errorf("%+v", tools[0])
	}
	bad := Functions{"a": {InputSchema: json.RawMessage(`{`)}}
	if _, err := bad.ListTools(context.Background()); !errors.Is(err, tga.SchemaViolation) {
		t.Errorf("got %v", err)
	}
}
