package httpcall_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
)

// An HTTP tool server gets the arguments as a POST, with the key in a header that is the same
// for every attempt. A status says whether the call ran, did not run, or is in doubt.
func ExampleNew() {
	tools := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		args, _ := io.ReadAll(r.Body)
		fmt.Println(r.URL.Path, string(args), r.Header.Get("Idempotency-Key"))
		switch r.URL.Path {
		case "/charge":
			fmt.Fprint(w, `{"receipt":17}`)
		case "/refund":
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"error":"no such charge"}`)
		default:
			http.Error(w, "try later", http.StatusServiceUnavailable)
		}
	}))
	defer tools.Close()
	server, err := httpcall.New(tools.URL, httpcall.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	for _, tool := range []string{"charge", "refund", "transfer"} {
		reply, err := server.Dispatch(context.Background(), runtime.Call{
			Server: "payments", Tool: tool, Key: "order-1", Args: []byte(`{"amount":100}`), Attempt: 1,
		})
		switch {
		case errors.Is(err, runtime.ErrNotSent):
			fmt.Println("no byte of it left")
		case err != nil:
			fmt.Println("in doubt")
		default:
			fmt.Println(reply.Status, string(reply.Result))
		}
	}
	// Output:
	// /charge {"amount":100} order-1
	// SUCCESS {"receipt":17}
	// /refund {"amount":100} order-1
	// FAILURE {"error":"no such charge"}
	// /transfer {"amount":100} order-1
	// in doubt
}
