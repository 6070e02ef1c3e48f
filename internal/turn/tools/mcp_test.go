package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/runtime/mcp"
	"github.com/tgad/tgad/schemas/tga"
)

// sdkServer is a server made with the official SDK, of n tools in pages of two.
func sdkServer(n int) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "sdk", Version: "1"}, &sdk.ServerOptions{PageSize: 2})
	for i := range n {
		addTool(s, fmt.Sprintf("t%02d", i), `{"type":"object","required":["path"],"properties":{"path":{"type":"string"}}}`)
	}
	return s
}

func addTool(s *sdk.Server, name, schema string) {
	s.AddTool(&sdk.Tool{Name: name, Description: "does " + name, InputSchema: json.RawMessage(schema)},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{}, nil
		})
}

// TestToolsOfARealServer: all pages of a list, through package mcp over HTTP, and beside it a
// server that is not there.
func TestToolsOfARealServer(t *testing.T) {
	var lists atomic.Int32
	server := sdkServer(5)
	server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if method == "tools/list" {
				lists.Add(1)
			}
			return next(ctx, method, req)
		}
	})
	web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	t.Cleanup(web.Close) // runs after the clients' cleanup, which ends their sessions there
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	client := func(url string) *mcp.Server {
		s, err := mcp.New("s", mcp.Options{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	r := newResolver(t, Options{Timeout: 30 * time.Second, Servers: map[string]Lister{"s": client(web.URL), "gone": client(gone.URL)}})
	for range 2 {
		tools, warnings := resolve(t, r, discover("gone"), discover("s"))
		if !slices.Equal(namesOf(tools), []string{"t00", "t01", "t02", "t03", "t04"}) || !slices.Equal(codes(warnings), []string{"gone TOOL_ERROR"}) {
			t.Fatal(namesOf(tools), warnings)
		}
		if tools[4].Description != "does t04" || tools[4].Source.Type != turn.FromMCP {
			t.Errorf("%+v", tools[4])
		}
		if err := r.Validate(&tools[4], []byte(`{"path":1}`)); tga.CodeOf(err) != tga.SchemaViolation {
			t.Errorf("got %v", err)
		}
	}
	if lists.Load() != 3 {
		t.Errorf("%d pages were asked for, want 3: the second Resolve is served from memory", lists.Load())
	}
	addTool(server, "t05", anyObject)
	r.Invalidate("s")
	if tools, warnings := resolve(t, r, discover("s")); len(tools) != 6 || len(warnings) != 0 {
		t.Errorf("after a change: %v, %v", namesOf(tools), warnings)
	}
}

// sessionLister lists through a session of the SDK's own client.
type sessionLister struct{ session *sdk.ClientSession }

func (l sessionLister) ListTools(ctx context.Context) ([]mcp.Tool, error) {
	var all []mcp.Tool
	for t, err := range l.session.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		definition, err := json.Marshal(t)
		if err != nil {
			return nil, err
		}
		all = append(all, mcp.Tool{Name: t.Name, Definition: definition})
	}
	return all, nil
}

// TestListChangedIsHonoured: after a notification of a real server, the next Resolve sees the new
// tool, whatever the TTL.
func TestListChangedIsHonoured(t *testing.T) {
	ctx := context.Background()
	server := sdkServer(1)
	here, there := sdk.NewInMemoryTransports()
	ss, err := server.Connect(ctx, there, nil)
	if err != nil {
		t.Fatal(err)
	}
	var r *Resolver
	changed := make(chan struct{}, 1)
	client := sdk.NewClient(&sdk.Implementation{Name: "c", Version: "1"}, &sdk.ClientOptions{
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) {
			r.Invalidate("s")
			changed <- struct{}{}
		},
	})
	cs, err := client.Connect(ctx, here, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cs.Close() // the other end of the pipe may have closed first
		_ = ss.Wait()
	}()
	r = newResolver(t, Options{TTL: 1000 * time.Hour, Servers: map[string]Lister{"s": sessionLister{cs}}})
	if tools, _ := resolve(t, r, discover("s")); !slices.Equal(namesOf(tools), []string{"t00"}) {
		t.Fatal(namesOf(tools))
	}
	addTool(server, "t00", `{"type":"object"}`)
	<-changed
	if _, warnings := resolve(t, r, discover("s")); !slices.Equal(codes(warnings), []string{"t00 TOOL_SCHEMA_CHANGED"}) {
		t.Error(warnings)
	}
}
