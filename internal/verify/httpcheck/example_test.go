package httpcheck_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/internal/verify/httpcheck"
	"github.com/tgad/tgad/runtime"
)

// A provider stores what it did under the idempotency key of the call. Its answer counts for this call only
// if it names the key.
func ExampleNewProber() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"key":"order-7","state":"done","response":{"charge":"ch_1"}}`)
	}))
	defer provider.Close()
	done := "done"
	prober, err := httpcheck.NewProber(httpcheck.ProberConfig{
		URL: provider.URL + "/charges/{key}",
		Ran: []httpcheck.Rule{{Checks: []verify.Check{
			{Pointer: "/key", Field: "key"},
			{Pointer: "/state", Equals: &done},
		}}},
		NotRan: []httpcheck.Rule{{Status: []int{http.StatusNotFound}}},
		Reply:  httpcheck.Reply{Result: "/response"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	probed, err := prober.Probe(context.Background(), runtime.Call{Server: "payments", Tool: "charge", Key: "order-7"})
	fmt.Println(probed.Answer, string(probed.Reply.Result), err)
	// Output: ran {"charge":"ch_1"} <nil>
}
