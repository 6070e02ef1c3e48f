package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch"
	"github.com/tgad/tgad/schemas/tga"
)

// A router has a stack for each server. A send that certainly did not reach the server is
// tried again within the same attempt; anything else is not.
func ExampleRouter() {
	tries := 0
	transport := runtime.DispatcherFunc(func(_ context.Context, call runtime.Call) (runtime.Reply, error) {
		switch tries++; {
		case call.Tool == "lost":
			return runtime.Reply{}, errors.New("the connection was lost")
		case tries < 3:
			return runtime.Reply{}, fmt.Errorf("connection refused: %w", runtime.ErrNotSent)
		}
		return runtime.Reply{Status: tga.StatusSuccess, Summary: "charged"}, nil
	})
	router := dispatch.Router{"payments": dispatch.Timeout(
		dispatch.Retry(
			dispatch.Limit(dispatch.Breaker(transport, dispatch.BreakerOptions{}), 16),
			dispatch.RetryOptions{Tries: 3, Delay: time.Millisecond}),
		func(tool string) time.Duration { return 10 * time.Second },
	)}
	ctx := context.Background()
	reply, err := router.Dispatch(ctx, runtime.Call{Server: "payments", Tool: "charge", Namespace: "default"})
	fmt.Println(reply.Summary, err, tries)

	tries = 0
	_, err = router.Dispatch(ctx, runtime.Call{Server: "payments", Tool: "lost", Namespace: "default"})
	fmt.Println(errors.Is(err, runtime.ErrNotSent), tries)

	_, err = router.Dispatch(ctx, runtime.Call{Server: "unknown", Tool: "charge", Namespace: "default"})
	fmt.Println(errors.Is(err, runtime.ErrNotSent))
	// Output:
	// charged <nil> 3
	// false 1
	// true
}
