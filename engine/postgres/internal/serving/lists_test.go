package serving_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/internal/search/searchtest"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// indexed says in the configuration whether daemons that start keep an index of lists.
func (f *fleet) indexed(is bool) {
	f.t.Helper()
	text, err := os.ReadFile(f.config)
	if err != nil {
		f.t.Fatal(err)
	}
	out := strings.Replace(strings.Replace(string(text), "list_index = true\n", "", 1), "[store]\n", fmt.Sprintf("[store]\n%s", map[bool]string{true: "list_index = true\n"}[is]), 1)
	if err := os.WriteFile(f.config, []byte(out), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// row asks the database of the store.
func (f *fleet) row(statement string, args ...any) pgx.Row {
	f.t.Helper()
	c, err := pgx.Connect(f.t.Context(), f.url)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close(f.t.Context()) })
	return c.QueryRow(f.t.Context(), statement, args...)
}

// TestListIsFiltered is that of a store in a directory, asked of two daemons of one in a database.
func TestListIsFiltered(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "", "[limits]\npage = 3\n")
	f.indexed(true)
	a, b := f.start("a"), f.start("b")
	made := 0
	searchtest.Filtered(t, searchtest.Daemons{
		Clients: []*client.Client{a.Client, b.Client}, Server: "pay", Tools: [2]string{"charge", "opaque"},
		Call: func(req runtime.Request, refuse bool) (runtime.Result, error) {
			f.tool.refusing(refuse)
			made++
			return []*daemon{a, b}[made%2].Call(t.Context(), req)
		},
		Erase: func(id tga.ID) error {
			return f.row("UPDATE tgad.entries SET parts = NULL, spill = NULL WHERE shard = $1 AND trace = $2 AND seq = 1 RETURNING 1", f.shard, [16]byte(id)).Scan(new(int))
		},
	})
}

// newest lists all calls of a tool, the newest first.
func newest(t *testing.T, d *daemon, tool string) (ids []tga.ID) {
	t.Helper()
	for o, err := range d.Traces(t.Context(), wire.TracesQuery{All: true, Newest: true, Tool: tool}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, o.TraceID)
	}
	return ids
}

// TestListsOutliveTheirKeeper: when the daemon that keeps the lists is killed, another one keeps them, and no call is missing. A
// daemon that does not ask for them leaves them alone while another one keeps them, and removes them where none does.
func TestListsOutliveTheirKeeper(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "", "")
	f.indexed(true)
	a := f.start("a")
	until(t, "a keeps the lists", func() bool {
		return f.row("SELECT position IS NOT NULL FROM tgad.lists_standing WHERE shard = $1", f.shard).Scan(new(bool)) == nil
	})
	b := f.start("b")
	var want []tga.ID
	calls := func(d *daemon, n int) {
		for range n {
			res, err := d.Call(t.Context(), call("opaque", fmt.Sprint("key ", len(want))))
			if err != nil {
				t.Fatal(err)
			}
			want = append([]tga.ID{res.TraceID}, want...)
			time.Sleep(2 * time.Millisecond) // each of its own millisecond
		}
	}
	agree := func(when string, daemons ...*daemon) {
		t.Helper()
		for _, d := range daemons {
			until(t, when+": the lists have every call", func() bool { return slices.Equal(newest(t, d, "opaque"), want) })
		}
	}
	calls(a, 5)
	calls(b, 5)
	agree("two daemons", a, b)
	a.end(syscall.SIGKILL)
	calls(b, 5)
	agree("its keeper was killed", b)
	until(t, "none is behind", func() bool { return metric(t, b, "tgad_lists_behind") == "0" })

	f.indexed(false)
	c := f.start("c")
	time.Sleep(2 * lease)
	if _, err := next(c.Traces(t.Context(), wire.TracesQuery{All: true, Newest: true})); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("a daemon without lists: %v", err)
	}
	calls(c, 2)
	agree("beside a daemon without lists", b)
	b.end(syscall.SIGTERM)
	c.end(syscall.SIGTERM)
	f.start("d")
	until(t, "the lists are removed", func() bool {
		var n int
		if err := f.row("SELECT (SELECT count(*) FROM tgad.lists WHERE shard = $1) + (SELECT count(*) FROM tgad.lists_standing WHERE shard = $1)", f.shard).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}

// next is the first of a list.
func next(list func(yield func(wire.OpenTrace, error) bool)) (o wire.OpenTrace, err error) {
	for o, err = range list {
		break
	}
	return o, err
}

// TestListsOfAllStores: a daemon of all stores of a fleet lists the calls of all as one, the newest first, a page at a time. Where a
// store does not answer there is no list.
func TestListsOfAllStores(t *testing.T) {
	t.Parallel()
	one, two := twoShards(t)
	f := newFleet(t, pgserver.DSN(one), "[limits]\npage = 2\n")
	f.indexed(true)
	d := f.start("d")
	var want []tga.ID
	for i := range 9 {
		r := call([]string{"opaque", "charge"}[i/6], fmt.Sprint("key ", i))
		r.Namespace = []string{"a", "b", ""}[i%3]
		res, err := d.Call(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if r.Tool == "opaque" {
			want = append([]tga.ID{res.TraceID}, want...)
		}
		time.Sleep(2 * time.Millisecond)
	}
	until(t, "the lists have every call", func() bool { return slices.Equal(newest(t, d, "opaque"), want) })
	until(t, "none is behind", func() bool { return metric(t, d, "tgad_lists_behind") == "0" })
	for _, q := range []wire.TracesQuery{{Namespace: "b"}, {Namespace: "a", Tool: "opaque"}} {
		q.All, q.Newest = true, true
		n := 0
		for o, err := range d.Traces(t.Context(), q) {
			if err != nil || o.Namespace != q.Namespace {
				t.Errorf("%+v: %+v, %v", q, o, err)
			}
			n++
		}
		if want := map[string]int{"b": 3, "a": 2}[q.Namespace]; n != want {
			t.Errorf("%+v: %d calls, want %d", q, n, want)
		}
	}
	if err := two.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := next(d.Traces(t.Context(), wire.TracesQuery{All: true, Newest: true})); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("with a store that does not answer: %v", err)
	}
}

// TestListsOfACopy: a daemon that keeps lists finds the calls that a store had before it was copied into the database, those whose
// bodies were archived among them.
func TestListsOfACopy(t *testing.T) {
	t.Parallel()
	from, f := directory(t, 20), newFleet(t, "", approvals)
	f.indexed(true)
	if out, err := program("copy", "--from", from.dir, "--to", f.url, "--config", f.config).CombinedOutput(); err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	d := f.start("a")
	for tool, want := range map[string]int{"opaque": 21, "refund": 1, "none": 0} {
		var has []tga.ID
		until(t, tool+" is listed", func() bool {
			has = newest(t, d, tool)
			return len(has) >= want
		})
		if len(has) != want {
			t.Errorf("%d calls of %s, want %d", len(has), tool, want)
		}
		if tool == "refund" && has[0] != from.asked {
			t.Errorf("lists %s, want %s", has[0], from.asked)
		}
	}
}
