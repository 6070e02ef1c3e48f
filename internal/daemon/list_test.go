package daemon

import (
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/search/searchtest"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
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
		wire.TracesQuery
		want int
	}{
		{wire.TracesQuery{}, 1},
		{wire.TracesQuery{All: true}, finished + 1},
		{wire.TracesQuery{All: true, State: "COMPLETED"}, finished},
		{wire.TracesQuery{All: true, State: "PENDING"}, 1},
		{wire.TracesQuery{State: "COMPLETED"}, 0},
		{wire.TracesQuery{All: true, Namespace: tga.DefaultNamespace}, finished + 1},
		{wire.TracesQuery{All: true, Namespace: "nobody"}, 0},
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

// TestLongLooksAreFew: a peer that may see none of many traces gets a page behind all of them. So many requests as
// there may be streams look that far at a time.
func TestLongLooksAreFew(t *testing.T) {
	b := start(t, "[limits]\npage = 1\nfollowers = 1\n")
	for range lookedPerPage + 1 {
		if _, err := b.client.Call(t.Context(), charge(newID().String())); err != nil {
			t.Fatal(err)
		}
	}
	d := b.near.d
	page := func() (any, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://tgad/v1/traces?all=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		stranger := peer{uid: 2007, role: config.Role{Namespace: "other", Verbs: []config.Verb{config.Read}}}
		return listing{&request{d: d, w: &nearAnswer{header: http.Header{}}, r: r, peer: stranger}}.traces()
	}
	leave, err := (&request{d: d}).takeFollower()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := page(); tga.CodeOf(err) != tga.LimitExceeded || problemOf(err).Status != http.StatusTooManyRequests {
		t.Errorf("beside a stream: %+v, %v", got, err)
	}
	leave()
	for range 2 { // each gives its place back
		if got, err := page(); err != nil || len(got.(wire.Traces).Traces) > 0 || !got.(wire.Traces).Next.IsZero() {
			t.Errorf("alone: %+v, %v", got, err)
		}
	}
}

// TestListIsFiltered: each filter of a list chooses the traces that match in the log, by id and by the index
// of lists, a page at a time. An erased trace is not found by its erased values.
func TestListIsFiltered(t *testing.T) {
	b := startIndexed(t, "[limits]\npage = 3\n")
	var refused atomic.Bool
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		if refused.Load() {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		_, _ = w.Write([]byte(`{"ok":true}`))
	})
	searchtest.Filtered(t, searchtest.Daemons{
		Clients: []*client.Client{b.client}, Server: "pay", Tools: [2]string{"charge", "charge_opaque"},
		Call: func(req runtime.Request, refuse bool) (runtime.Result, error) {
			refused.Store(refuse)
			return b.client.Call(t.Context(), req)
		},
		Erase: func(id tga.ID) error {
			_, err := b.client.Erase(t.Context(), wire.EraseRequest{Traces: []tga.ID{id}, Reason: "test"})
			return err
		},
	})
}

// TestBadListIsRefused names what is wrong with it.
func TestBadListIsRefused(t *testing.T) {
	with, without := startIndexed(t, ""), start(t, "")
	for _, c := range []struct {
		b         *bench
		query, at string
	}{
		{with, "state=DONE", "/state"}, {with, "class=fine", "/class"}, {with, "since=yesterday", "/since"}, {with, "until=1", "/until"},
		{with, "newest=yes", "/newest"}, {with, "after=x", "/after"}, {with, "before=2026-01-01T00:00:00.000Z", "/before"},
		{with, "newest=1&after=" + newID().String(), "/before"}, {without, "newest=1", "/newest"},
		{with, "all=1&sever=pay", "/sever"}, {with, "all=1&tool=a&tool=b", "/tool"},
	} {
		if status, _, raw := c.b.raw("GET", "/v1/traces?"+c.query, ""); status != 422 || !strings.Contains(string(raw), `"`+c.at+`"`) {
			t.Errorf("%s: %d %s", c.query, status, raw)
		}
	}
}

// startIndexed starts a daemon with an index of lists.
func startIndexed(t *testing.T, extra string) *bench {
	b := setup(t, extra)
	b.config = strings.Replace(b.config, "[store]\n", "[store]\nlist_index = true\n", 1)
	b.start()
	return b
}

// TestIndexThatIsNotAskedForIsRemoved: a daemon without an index removes an old one, so that no later index has
// traces that were erased meanwhile.
func TestIndexThatIsNotAskedForIsRemoved(t *testing.T) {
	b := startIndexed(t, "")
	res, err := b.client.Call(t.Context(), charge("k"))
	if err != nil {
		t.Fatal(err)
	}
	newest := func() (n int) {
		for o, err := range b.client.Traces(t.Context(), wire.TracesQuery{All: true, Newest: true, Tool: "charge"}) {
			if err != nil || o.TraceID != res.TraceID {
				t.Fatal(o, err)
			}
			n++
		}
		return n
	}
	if n := newest(); n != 1 {
		t.Fatalf("%d traces", n)
	}
	with := b.config
	b.config = strings.Replace(with, "list_index = true", "", 1)
	b.stop()
	b.start()
	if left, err := filepath.Glob(filepath.Join(b.data, "lists", "*")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if _, err := b.client.Erase(t.Context(), wire.EraseRequest{Traces: []tga.ID{res.TraceID}, Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	b.config = with
	b.stop()
	b.start()
	if n := newest(); n != 0 {
		t.Errorf("%d traces are found by what was erased", n)
	}
}
