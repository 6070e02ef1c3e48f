package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/mcp"
)

// An MCP server behind an endpoint becomes a dispatcher. With Options.Command in place of
// Options.URL it is a program that speaks on stdin and stdout.
func ExampleServer() {
	payments := sdk.NewServer(&sdk.Implementation{Name: "payments", Version: "1"}, nil)
	payments.AddTool(&sdk.Tool{Name: "charge", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			fmt.Println("charge", string(r.Params.Arguments), r.Params.Meta["dev.tgad/idempotencyKey"])
			return &sdk.CallToolResult{StructuredContent: map[string]int{"receipt": 17}}, nil
		})
	endpoint := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return payments }, nil))
	defer endpoint.Close()

	server, err := mcp.New("payments", mcp.Options{URL: endpoint.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	ctx := context.Background()
	tools, err := server.ListTools(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, tool := range tools {
		fmt.Println("has", tool.Name)
	}
	reply, err := server.Dispatch(ctx, runtime.Call{Server: "payments", Tool: "charge", Key: "order-1", Args: []byte(`{"amount":100}`), Attempt: 1})
	if err != nil { // runtime.ErrNotSent, or in doubt
		fmt.Println(err)
		return
	}
	var result struct{ StructuredContent json.RawMessage }
	if err := json.Unmarshal(reply.Result, &result); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reply.Status, string(result.StructuredContent))
	// Output:
	// has charge
	// charge {"amount":100} order-1
	// SUCCESS {"receipt":17}
}
