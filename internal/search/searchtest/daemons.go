package searchtest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// Daemons serve a store with an index of lists, and are asked for lists. Their pages have fewer rows than there are calls.
type Daemons struct {
	Clients []*client.Client // of each
	Server  string           // of both tools
	Tools   [2]string
	// Call makes a call, which the tool refuses where refuse says so.
	Call  func(req runtime.Request, refuse bool) (runtime.Result, error)
	Erase func(trace tga.ID) error
}

// called is a call that was made.
type called struct {
	id    tga.ID
	since tga.Millis
}

// Filtered: each thing that a list can be asked for chooses what the log says, by id and by the index, a page at a time; what is
// erased is found by nothing that was erased.
func Filtered(t *testing.T, d Daemons) {
	var calls []called // in the order in which they came
	for i := range 12 {
		req := runtime.Request{Server: d.Server, Tool: d.Tools[0], Key: fmt.Sprintf("key-%d", i), Args: fmt.Appendf(nil, `{"amount":%d,"to":"person-%d"}`, i, i%4)}
		if i%3 == 0 {
			req.Tool = d.Tools[1]
		}
		res, err := d.Call(req, i%5 == 0)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, called{res.TraceID, since(t, d.Clients[0], res.TraceID)})
	}
	is := func(f func(i int, c called) bool) (ids []tga.ID) {
		for i, c := range calls {
			if f(i, c) {
				ids = append(ids, c.id)
			}
		}
		return ids
	}
	every := func(int, called) bool { return true }
	middle := calls[6].since
	for _, c := range []struct {
		wire.TracesQuery
		want []tga.ID
	}{
		{wire.TracesQuery{}, is(every)},
		{wire.TracesQuery{Tool: d.Tools[1]}, is(func(i int, _ called) bool { return i%3 == 0 })},
		{wire.TracesQuery{Server: d.Server}, is(every)},
		{wire.TracesQuery{Server: "elsewhere"}, nil},
		{wire.TracesQuery{Namespace: tga.DefaultNamespace}, is(every)},
		{wire.TracesQuery{Namespace: "elsewhere"}, nil},
		{wire.TracesQuery{Key: "key-7"}, is(func(i int, _ called) bool { return i == 7 })},
		{wire.TracesQuery{State: "FAILED"}, is(func(i int, _ called) bool { return i%5 == 0 })},
		{wire.TracesQuery{Class: "permanent_failure"}, is(func(i int, _ called) bool { return i%5 == 0 })},
		{wire.TracesQuery{Class: "side_effect_committed", Tool: d.Tools[0]}, is(func(i int, _ called) bool { return i%5 != 0 && i%3 != 0 })},
		{wire.TracesQuery{Text: `"person-2"`}, is(func(i int, _ called) bool { return i%4 == 2 })},
		{wire.TracesQuery{Since: middle}, is(func(_ int, c called) bool { return c.since >= middle })},
		{wire.TracesQuery{Until: middle}, is(func(_ int, c called) bool { return c.since < middle })},
	} {
		for _, newest := range []bool{false, true} {
			q := c.TracesQuery
			q.All, q.Newest = true, newest
			for _, x := range d.Clients {
				if got := listed(t, x, q); !slices.Equal(got, ordered(calls, c.want, newest)) {
					t.Errorf("%+v: %v, want %v", q, got, ordered(calls, c.want, newest))
				}
			}
		}
	}
	if err := d.Erase(calls[3].id); err != nil {
		t.Fatal(err)
	}
	// A list by id of a store in a database shows what its daemon remembers, until something else takes the place of that.
	for _, newest := range []bool{false, true} {
		for _, x := range d.Clients {
			if got := listed(t, x, wire.TracesQuery{All: true, Newest: newest, Tool: d.Tools[1]}); newest && slices.Contains(got, calls[3].id) || len(got) < 3 {
				t.Errorf("newest %v: found by what was erased, or too few: %v", newest, got)
			}
			if got := listed(t, x, wire.TracesQuery{All: true, Newest: newest, Text: `"person-3"`}); newest && slices.Contains(got, calls[3].id) || len(got) < 2 {
				t.Errorf("newest %v: found by a text that was erased, or too few: %v", newest, got)
			}
			if got := listed(t, x, wire.TracesQuery{All: true, Newest: newest}); len(got) != len(calls) {
				t.Errorf("newest %v: %d of %d calls after an erasure", newest, len(got), len(calls))
			}
		}
	}
}

// ordered is calls in the order of a list.
func ordered(calls []called, ids []tga.ID, newest bool) []tga.ID {
	at := map[tga.ID]tga.Millis{}
	for _, c := range calls {
		at[c.id] = c.since
	}
	return slices.SortedFunc(slices.Values(ids), func(a, b tga.ID) int {
		byID := bytes.Compare(a[:], b[:])
		if !newest {
			return byID
		}
		return cmp.Or(cmp.Compare(at[b], at[a]), -byID)
	})
}

func listed(t *testing.T, x *client.Client, q wire.TracesQuery) (ids []tga.ID) {
	t.Helper()
	for o, err := range x.Traces(t.Context(), q) {
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		ids = append(ids, o.TraceID)
	}
	return ids
}

// since is when a trace came into its state.
func since(t *testing.T, x *client.Client, id tga.ID) (since tga.Millis) {
	t.Helper()
	for o, err := range x.Traces(t.Context(), wire.TracesQuery{All: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if o.TraceID == id {
			since = o.Since
		}
	}
	return since
}
