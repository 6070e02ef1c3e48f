package daemon

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// TestListOfAllTraces: with all=1 the finished traces are listed too, by state and namespace as
// well, a page at a time, and a page is not chosen from the whole store.
func TestListOfAllTraces(t *testing.T) {
	b := start(t, "[limits]\npage = 1\n")
	const finished = 70 // more than a page of one is chosen from
	for range finished {
		if _, err := b.client.Call(t.Context(), charge(newID().String())); err != nil {
			t.Fatal(err)
		}
	}
	c := mintChain(t, "raw-1", nil)
	lease, err := b.client.Lease(t.Context(), c.trace, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Append(t.Context(), c.trace, appending(lease.Lease, c.request)); err != nil {
		t.Fatal(err)
	}
	for _, q := range []struct {
		client.TracesQuery
		want int
	}{
		{client.TracesQuery{}, 1},
		{client.TracesQuery{All: true}, finished + 1},
		{client.TracesQuery{All: true, State: "COMPLETED"}, finished},
		{client.TracesQuery{All: true, State: "PENDING"}, 1},
		{client.TracesQuery{State: "COMPLETED"}, 0},
		{client.TracesQuery{All: true, Namespace: tga.DefaultNamespace}, finished + 1},
		{client.TracesQuery{All: true, Namespace: "nobody"}, 0},
	} {
		n := 0
		last := ""
		for o, err := range b.client.Traces(t.Context(), q.TracesQuery) {
			if err != nil {
				t.Fatal(err)
			}
			if o.ToolName == "" || o.IdempotencyKey == "" || o.TraceID.String() <= last {
				t.Errorf("%+v after %s", o, last)
			}
			n, last = n+1, o.TraceID.String()
		}
		if n != q.want {
			t.Errorf("%+v: %d traces, want %d", q.TracesQuery, n, q.want)
		}
	}
	// 64 are looked at for a page of one.
	if status, _, raw := b.raw("GET", "/v1/traces?all=1&namespace=nobody", ""); status != 200 || !strings.Contains(string(raw), `"traces":[]`) || !strings.Contains(string(raw), `"next":`) {
		t.Errorf("%d %s", status, raw)
	}
	if status, _, raw := b.raw("GET", "/v1/traces?all=2", ""); status != 422 || !strings.Contains(string(raw), `"/all"`) {
		t.Errorf("%d %s", status, raw)
	}
}
