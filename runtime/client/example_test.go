package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tgad/tgad/internal/daemon/embed"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// exampleDaemon starts a daemon that approves every call; `tgad serve` is one.
func exampleDaemon() (socket string, stop func()) {
	dir, err := os.MkdirTemp("", "tgad-example-")
	if err != nil {
		panic(err)
	}
	d, err := embed.Start(context.Background(), filepath.Join(dir, "store"), nil, nil)
	if err != nil {
		panic(err)
	}
	return d.Socket, func() {
		d.Close()
		if err := os.RemoveAll(dir); err != nil {
			panic(err)
		}
	}
}

// A client that sends calls itself first asks for a permit. The call is durable when Begin
// returns. Finish records the tool's answer, and from then on the key is served.
func ExampleClient_Begin() {
	socket, stop := exampleDaemon()
	defer stop()
	c := client.New(socket, client.Options{Name: "example"})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	for _, id := range []string{"first", "second"} { // a begin id names one wish to send
		begun, err := c.Begin(ctx, runtime.BeginRequest{
			Request: runtime.Request{Server: "payments", Tool: "charge", Key: "order-1", Args: []byte(`{"amount":100}`)},
			BeginID: id,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(begun.Standing)
		if begun.Standing != runtime.BeginSend {
			fmt.Println(string(begun.Result.Value))
			continue
		}
		// Here the call goes to its tool, within begun.SendWithin.
		res, err := c.Finish(ctx, begun.Result.TraceID, begun.Permit, runtime.Finished{
			Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"receipt":17}`)},
		})
		fmt.Println(res.State, err)
	}

	begun, err := c.Begin(ctx, runtime.BeginRequest{
		Request: runtime.Request{Server: "payments", Tool: "charge", Key: "order-1", Args: []byte(`{"amount":999}`)},
		BeginID: "third",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(begun.Standing, errors.Is(begun.Cause, tga.IdempotencyKeyConflict)) // a code is the same on both sides of the socket
	// Output:
	// send
	// COMPLETED <nil>
	// serve
	// {"receipt":17}
	// conflict true
}
