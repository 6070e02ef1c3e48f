package daemon

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

// TestListIsFiltered: each thing that a list can be asked for chooses what the log says, by id and by the
// index of lists, a page at a time; what is erased is found by nothing that was erased.
func TestListIsFiltered(t *testing.T) {
	b := startIndexed(t, "[limits]\npage = 3\n")
	var want []wire.OpenTrace // in the order in which they came
	for i := range 12 {
		req := charge(fmt.Sprintf("key-%d", i))
		if i%3 == 0 {
			req.Tool = "charge_opaque"
		}
		req.Args = []byte(fmt.Sprintf(`{"amount":%d,"to":"person-%d"}`, i, i%4))
		b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			if i%5 == 0 {
				w.WriteHeader(http.StatusUnprocessableEntity)
			}
			_, _ = w.Write([]byte(`{"ok":true}`))
		})
		res, err := b.client.Call(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, wire.OpenTrace{TraceID: res.TraceID, State: res.State.String(), ToolName: req.Tool, IdempotencyKey: req.Key, Since: b.since(res.TraceID)})
	}
	is := func(f func(i int, o wire.OpenTrace) bool) (ids []tga.ID) {
		for i, o := range want {
			if f(i, o) {
				ids = append(ids, o.TraceID)
			}
		}
		return ids
	}
	middle := want[6].Since
	for _, c := range []struct {
		wire.TracesQuery
		want []tga.ID
	}{
		{wire.TracesQuery{}, is(func(int, wire.OpenTrace) bool { return true })},
		{wire.TracesQuery{Tool: "charge_opaque"}, is(func(i int, _ wire.OpenTrace) bool { return i%3 == 0 })},
		{wire.TracesQuery{Server: "pay"}, is(func(int, wire.OpenTrace) bool { return true })},
		{wire.TracesQuery{Server: "elsewhere"}, nil},
		{wire.TracesQuery{Key: "key-7"}, is(func(i int, _ wire.OpenTrace) bool { return i == 7 })},
		{wire.TracesQuery{State: "FAILED"}, is(func(i int, _ wire.OpenTrace) bool { return i%5 == 0 })},
		{wire.TracesQuery{Class: "permanent_failure"}, is(func(i int, _ wire.OpenTrace) bool { return i%5 == 0 })},
		{wire.TracesQuery{Class: "side_effect_committed", Tool: "charge"}, is(func(i int, _ wire.OpenTrace) bool { return i%5 != 0 && i%3 != 0 })},
		{wire.TracesQuery{Text: `"person-2"`}, is(func(i int, _ wire.OpenTrace) bool { return i%4 == 2 })},
		{wire.TracesQuery{Since: middle}, is(func(_ int, o wire.OpenTrace) bool { return o.Since >= middle })},
		{wire.TracesQuery{Until: middle}, is(func(_ int, o wire.OpenTrace) bool { return o.Since < middle })},
	} {
		for _, newest := range []bool{false, true} {
			q := c.TracesQuery
			q.All, q.Newest = true, newest
			var got []tga.ID
			for o, err := range b.client.Traces(t.Context(), q) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, o.TraceID)
			}
			if newest {
				slices.Reverse(got)
			}
			byID := slices.SortedFunc(slices.Values(c.want), func(a, b tga.ID) int { return bytes.Compare(a[:], b[:]) })
			if !slices.Equal(got, c.want) && !slices.Equal(got, byID) || newest && !sameSince(want, got, c.want) {
				t.Errorf("%+v: %v, want %v", q, got, c.want)
			}
		}
	}
	if _, err := b.client.Erase(t.Context(), wire.EraseRequest{Traces: []tga.ID{want[3].TraceID}, Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	for _, newest := range []bool{false, true} {
		for o, err := range b.client.Traces(t.Context(), wire.TracesQuery{All: true, Newest: newest, Tool: "charge_opaque"}) {
			if err != nil || o.TraceID == want[3].TraceID {
				t.Errorf("%+v %v", o, err)
			}
		}
	}
}

// sameSince says whether the traces of a list come in the order in which they came into their states: two
// of one millisecond may stand either way.
func sameSince(all []wire.OpenTrace, got, want []tga.ID) bool {
	since := map[tga.ID]tga.Millis{}
	for _, o := range all {
		since[o.TraceID] = o.Since
	}
	return slices.IsSortedFunc(got, func(a, b tga.ID) int { return cmp.Compare(since[a], since[b]) }) && len(got) == len(want)
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

// since is when a trace came into its state.
func (b *bench) since(id tga.ID) (since tga.Millis) {
	b.t.Helper()
	for o, err := range b.client.Traces(b.t.Context(), wire.TracesQuery{All: true}) {
		if err != nil {
			b.t.Fatal(err)
		}
		if o.TraceID == id {
			since = o.Since
		}
	}
	return since
}

// startIndexed starts a daemon with an index of lists.
func startIndexed(t *testing.T, extra string) *bench {
	b := setup(t, extra)
	b.config = strings.Replace(b.config, "[store]\n", "[store]\nlist_index = true\n", 1)
	b.start()
	return b
}

// TestIndexThatIsNotAskedForIsRemoved: what is erased while the daemon keeps no index is in none that it finds
// later.
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
