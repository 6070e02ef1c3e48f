package turn_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// scripted is a language model that asks for a charge, and then says what became of it.
// `tgad agent` has models that speak with a provider.
type scripted struct{}

func (scripted) Generate(_ context.Context, q turn.Question) (turn.Answer, error) {
	last := q.Messages[len(q.Messages)-1]
	if last.Role == turn.RoleTool {
		return turn.Answer{Model: q.Model, Said: turn.Said("Paid: " + last.Plain()), Finish: turn.FinishStop}, nil
	}
	said := turn.Said("")
	said.ToolCalls = []turn.ToolCall{{ID: "c0", Name: "charge", Arguments: `{"amount":100}`}}
	return turn.Answer{Model: q.Model, Said: said, Finish: turn.FinishToolUse}, nil
}

// oneTool finds the tool of the example. `tgad agent` finds those of manifests and MCP servers.
type oneTool struct{}

func (oneTool) Resolve(context.Context, *turn.Agent) ([]turn.Tool, []turn.Warning, error) {
	return []turn.Tool{{
		Name: "charge", InputSchema: json.RawMessage(`{"type":"object"}`), Server: "payments", Remote: "charge",
		Transport: "function", Source: turn.ToolSource{Type: "manifest"},
	}}, nil, nil
}

func (oneTool) Validate(*turn.Tool, []byte) error { return nil }

// A message leads to turns: the model is asked, its tool calls are made, and it is asked again
// until it answers. Each step is durable. The same interaction again returns what came of it.
func ExampleRunner_Run() {
	ctx := context.Background()
	db, err := engine.Open("store", engine.Options{FS: vfs.NewMem()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	charges := 0
	charge := func(context.Context, runtime.Call) (runtime.Reply, error) {
		charges++
		return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"receipt":17}`)}, nil
	}
	runner, err := turn.New(db, runtime.DispatcherFunc(charge), runtime.AllowAll, turn.Options{
		Agents: []*turn.Agent{{Name: "treasurer", Role: "You pay invoices.", Model: turn.ModelSpec{Provider: "local", Model: "m1"}}},
		Models: map[string]turn.Model{"local": scripted{}}, Resolver: oneTool{},
		Runtime: runtime.Options{Policy: func(string, string) runtime.Policy {
			return runtime.Policy{Licence: ledger.Licence{Kind: ledger.Park}}
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := runner.Recover(ctx); err != nil { // what a crash cut off, first
		fmt.Println(err)
		return
	}
	request := turn.Request{Agent: "treasurer", SessionID: "invoices", InteractionID: exampleInteraction, Message: []byte("pay invoice 7")}
	for range 2 {
		res, err := runner.Run(ctx, request)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(res.Status, res.Turns, res.Text)
	}
	fmt.Println("charged", charges)
	// Output:
	// completed 2 Paid: {"receipt":17}
	// completed 2 Paid: {"receipt":17}
	// charged 1
}

// exampleInteraction is a UUIDv7; a program takes one from a library.
var exampleInteraction = tga.ID{0x01, 0x93, 0x6a, 0x8b, 0x4c, 0x2d, 0x70, 0, 0x80, 15: 1}
