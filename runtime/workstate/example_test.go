package workstate_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/workstate"
)

// A tool that fails leaves nothing, and the state goes back to before any recent call.
// With a store, Open takes the place of New, and the runtime is made on State.Store.
func ExampleTransact() {
	ctx := context.Background()
	type note struct{ Text string }
	resources := &workstate.Registry{}
	if err := workstate.Add(resources, workstate.NewKV()); err != nil {
		panic(err)
	}
	state, err := workstate.New(ctx, workstate.NewSession(), resources, workstate.Options{})
	if err != nil {
		panic(err)
	}
	tools := workstate.Tools{"write": workstate.Func(func(ctx context.Context, p note) (any, error) {
		tx := workstate.FromContext(ctx)
		kv, err := workstate.Use[*workstate.KV](tx)
		if err != nil {
			return nil, err
		}
		kv.Set("newest", []byte(p.Text))
		if p.Text == "" {
			return nil, errors.New("nothing to write")
		}
		return nil, workstate.Slice[note](tx.Session()).Append(p)
	})}
	sent := workstate.Transact(tools, state)
	for _, args := range []string{`{"Text":"one"}`, `{"Text":""}`, `{"Text":"two"}`} {
		reply, err := sent.Dispatch(ctx, runtime.Call{Server: "local", Tool: "write", Args: []byte(args)})
		fmt.Println(reply.Status, reply.ErrorMessage, err)
	}
	show := func() {
		err := state.View(ctx, func(tx *workstate.Tx) error {
			notes, err := workstate.Slice[note](tx.Session()).All()
			fmt.Println(notes)
			return err
		})
		if err != nil {
			panic(err)
		}
	}
	show()
	list := state.List()
	if _, err := state.RollbackTo(ctx, list[len(list)-1].ID); err != nil {
		panic(err)
	}
	show()
	// Output:
	// SUCCESS  <nil>
	// FAILURE nothing to write <nil>
	// SUCCESS  <nil>
	// [{one} {two}]
	// [{one}]
}

// Each evaluation has the limits of a budget for itself.
func ExampleWithEvaluation() {
	ctx := context.Background()
	resources := &workstate.Registry{}
	if err := workstate.Add(resources, workstate.NewBudget(workstate.Usage{Calls: 1})); err != nil {
		panic(err)
	}
	state, err := workstate.New(ctx, workstate.NewSession(), resources, workstate.Options{})
	if err != nil {
		panic(err)
	}
	tools := workstate.Tools{"look": workstate.Func(func(context.Context, struct{}) (any, error) { return nil, nil })}
	sent := workstate.Transact(tools, state)
	for _, evaluation := range []string{"run 1", "run 1", "run 2"} {
		reply, err := sent.Dispatch(workstate.WithEvaluation(ctx, evaluation), runtime.Call{Server: "local", Tool: "look", Args: []byte(`{}`)})
		fmt.Println(evaluation, reply.Status, err)
	}
	// Output:
	// run 1 SUCCESS <nil>
	// run 1  BUDGET_EXCEEDED: not sent: evaluation "run 1": 2 calls, at most 1
	// run 2 SUCCESS <nil>
}
