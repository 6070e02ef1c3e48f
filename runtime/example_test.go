package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// exampleStore opens a store in a new directory.
func exampleStore() (db *engine.DB, done func()) {
	dir, err := os.MkdirTemp("", "tgad-example-")
	if err != nil {
		panic(err)
	}
	db, err = engine.Open(filepath.Join(dir, "store"), engine.Options{})
	if err != nil {
		panic(err)
	}
	return db, func() {
		if err := errors.Join(db.Close(), os.RemoveAll(dir)); err != nil {
			panic(err)
		}
	}
}

// A call with a key is sent once. A repeated call gets the recorded answer.
func ExampleRuntime_Call() {
	db, done := exampleStore()
	defer done()
	charges := 0
	charge := func(_ context.Context, call runtime.Call) (runtime.Reply, error) {
		charges++ // here the request goes to the tool, with call.Key as its idempotency key
		return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"receipt":17}`)}, nil
	}
	rt, err := runtime.New(db, runtime.DispatcherFunc(charge), runtime.AllowAll, runtime.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for range 2 {
		res, err := rt.Call(ctx, runtime.Request{Server: "payments", Tool: "charge", Key: "order-1", Args: []byte(`{"amount":100}`)})
		fmt.Println(res.State, string(res.Value), err)
	}
	_, err = rt.Call(ctx, runtime.Request{Server: "payments", Tool: "charge", Key: "order-1", Args: []byte(`{"amount":999}`)})
	fmt.Println(tga.CodeOf(err))
	fmt.Println("charged", charges)
	// Output:
	// COMPLETED {"receipt":17} <nil>
	// COMPLETED {"receipt":17} <nil>
	// IDEMPOTENCY_KEY_CONFLICT
	// charged 1
}

// A dispatcher reports one of three outcomes: the tool answered, the tool was certainly not
// reached, or nobody can tell. In the third case the call is in doubt until somebody resolves
// it with evidence.
func ExampleDispatcher() {
	db, done := exampleStore()
	defer done()
	send := func(_ context.Context, call runtime.Call) (runtime.Reply, error) {
		switch call.Tool {
		case "answers":
			return runtime.Reply{Status: tga.StatusFailure, ErrorCode: "NO_FUNDS", ErrorMessage: "the card is empty"}, nil
		case "down":
			return runtime.Reply{}, fmt.Errorf("connection refused: %w", runtime.ErrNotSent)
		}
		return runtime.Reply{}, errors.New("the connection was lost before the answer")
	}
	rt, err := runtime.New(db, runtime.DispatcherFunc(send), runtime.AllowAll, runtime.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for _, tool := range []string{"answers", "down", "lost"} {
		res, err := rt.Call(ctx, runtime.Request{Server: "payments", Tool: tool, Key: "order-1"})
		if err != nil {
			fmt.Println(tool, tga.CodeOf(err))
			continue
		}
		fmt.Println(tool, res.State, res.Class)
	}
	list, err := rt.InDoubt(ctx)
	if err != nil || len(list) != 1 {
		fmt.Println(list, err)
		return
	}
	res, err := rt.Resolve(ctx, list[0].TraceID, runtime.Resolution{
		Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"receipt":18}`)},
		Who:   "ann", Evidence: []byte("line 7 of the bank statement"),
	})
	fmt.Println(res.State, res.ResolvedBy, err)
	// Output:
	// answers FAILED permanent_failure
	// down FAILED not_sent
	// lost EFFECT_IN_DOUBT
	// COMPLETED person <nil>
}

// fewRefunds denies refunds of more than 100 and approves everything else.
type fewRefunds struct{}

func (fewRefunds) Decide(_ context.Context, request *tga.Artifact) (runtime.Verdict, error) {
	if p := request.Request.Proposal; p.ToolName == "refund" && string(p.Args) != `{"amount":100}` {
		return runtime.Verdict{Decision: tga.Deny, Rationale: "a refund is 100 at most"}, nil
	}
	return runtime.Verdict{Decision: tga.Approve, Rationale: "nothing speaks against it"}, nil
}

// A supervisor decides whether a request becomes a call. Its decision is on disk before
// anything is sent.
func ExampleSupervisor() {
	db, done := exampleStore()
	defer done()
	send := func(context.Context, runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{Status: tga.StatusSuccess}, nil
	}
	rt, err := runtime.New(db, runtime.DispatcherFunc(send), fewRefunds{}, runtime.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, args := range []string{`{"amount":100}`, `{"amount":9999}`} {
		res, err := rt.Call(context.Background(), runtime.Request{Server: "payments", Tool: "refund", Key: fmt.Sprint(i), Args: []byte(args)})
		fmt.Println(res.State, res.Sent, err)
	}
	// Output:
	// COMPLETED 1 <nil>
	// DENIED 0 <nil>
}

// After a crash the runtime continues the open traces. Here the process ends after a send
// whose answer it never saw. The operator has attested that the tool recognises a repeated
// key, so the call is sent again, with the same key.
func ExampleRuntime_RecoverAll() {
	db, done := exampleStore()
	defer done()
	policy := func(string, string) runtime.Policy {
		return runtime.Policy{Licence: ledger.Licence{Kind: ledger.DedupeKey, Window: 24 * time.Hour}, Resends: -1}
	}
	ctx := context.Background()

	lost := func(context.Context, runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{}, errors.New("the process dies here")
	}
	before, err := runtime.New(db, runtime.DispatcherFunc(lost), runtime.AllowAll, runtime.Options{Policy: policy})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = before.Call(ctx, runtime.Request{Server: "payments", Tool: "charge", Key: "order-1"})
	fmt.Println(tga.CodeOf(err))

	answers := func(_ context.Context, call runtime.Call) (runtime.Reply, error) {
		fmt.Println("attempt", call.Attempt)
		return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"receipt":17}`)}, nil
	}
	after, err := runtime.New(db, runtime.DispatcherFunc(answers), runtime.AllowAll, runtime.Options{Policy: policy})
	if err != nil {
		fmt.Println(err)
		return
	}
	found, err := after.RecoverAll(ctx, 1)
	if err != nil || len(found) != 1 {
		fmt.Println(found, err)
		return
	}
	fmt.Println(found[0].Result.State, string(found[0].Result.Value))
	// Output:
	// EFFECT_IN_DOUBT
	// attempt 2
	// COMPLETED {"receipt":17}
}
