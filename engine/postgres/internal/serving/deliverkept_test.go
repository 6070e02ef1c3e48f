package serving_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/daemon/embed"
	"github.com/tgad/tgad/internal/notice"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// pager is the table of a receiver of notices without a pause.
const pager = "[[notify]]\nid = \"pager\"\npause = \"1ms\"\nafter = \"1ms\"\nresolved = true\non = [\"doubt\", \"frozen\"]"

// told are the matters that a receiver was told of, with why, in order: "new KEY".
func (r *receiver) told(t *testing.T) (all []string) {
	t.Helper()
	for _, p := range r.took() {
		var n notice.Notice
		if err := json.Unmarshal(p.body, &n); err != nil || n.Type != notice.TypeNotice {
			continue // records
		}
		for _, m := range n.Matters {
			all = append(all, m.Event+" "+m.Key)
		}
	}
	return all
}

// doubted makes a call that is in doubt soon: its executor says nothing any more.
func doubted(t *testing.T, c *client.Client, key string) tga.ID {
	t.Helper()
	b, err := c.Begin(t.Context(), runtime.BeginRequest{BeginID: "begin " + key, Request: runtime.Request{Server: "remote", Tool: "pay", Key: key, Args: []byte(`{}`)}})
	if err != nil {
		t.Fatal(err)
	}
	return b.Result.TraceID
}

// TestNoticesOfAFleet: one of two daemons tells people, whichever asked. When it is killed, the other one goes on: what was told is
// not told again, and of what was told by the first the end is told too. Then it tells that the store is frozen, which ended its session.
func TestNoticesOfAFleet(t *testing.T) {
	x := newDelivering(t, pager, time.Second)
	a, b := x.start(), x.start()
	first := doubted(t, b.Client, "first")
	until(t, "the first is told", func() bool { return len(x.to.told(t)) > 0 })
	other := doubted(t, a.Client, "other")
	until(t, "the other is told", func() bool { return len(x.to.told(t)) > 1 })
	teller := x.onDuty("notify/pager")
	if teller < 0 {
		t.Fatal("nobody is on duty")
	}
	left := x.daemons[1-teller]
	x.daemons[teller].end(syscall.SIGKILL)
	doubted(t, left.Client, "third")
	until(t, "the third is told", func() bool { return len(x.to.told(t)) > 2 })
	for _, id := range []tga.ID{first, other} {
		if _, err := left.Resolve(t.Context(), id, runtime.Resolution{Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{}`)}, Evidence: []byte("it was seen")}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the ends are told", func() bool { return len(x.to.told(t)) > 4 })
	if got := strings.Join(x.to.told(t), ", "); !strings.HasPrefix(got, "new first, new other, new third, resolved ") || strings.Count(got, "new") != 3 || strings.Count(got, "resolved") != 2 {
		t.Errorf("told: %s", got)
	}
	store, err := postgres.Open(t.Context(), x.url, postgres.Options{Shard: x.shard})
	if err == nil {
		err = errors.Join(store.Fleet().Freeze("a reason"), store.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it is told that the store is frozen", func() bool { return strings.HasSuffix(strings.Join(x.to.told(t), ", "), ", new ") })
}

// TestCopyGoesOnWithItsReceivers: a store in a directory delivered records and notices. Its copy in a database goes on behind
// them, and nothing comes again.
func TestCopyGoesOnWithItsReceivers(t *testing.T) {
	x := newDelivering(t, "[[audit]]\nid = \"hook\"", 3*time.Second)
	x.table = fmt.Sprintf("\n%s\ntype = \"webhook\"\nurl = %q\nsecret_file = %q\n", pager, x.to.URL, x.to.secret) + x.table
	conf, err := assemble.Parse("", []byte("allow_all = true\n[store]\nlow_water_bytes = 1\n[[server]]\nid = \"remote\"\ntype = \"external\"\n[[tool]]\nserver = \"remote\"\nname = \"pay\"\npermit_time = \"100ms\"\n"+x.table))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(x.dir, "store")
	d, err := embed.Start(t.Context(), dir, conf, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := d.Client(client.Options{Name: "test"})
	doubted(t, c, "first")
	until(t, "it is told", func() bool { return len(x.to.told(t)) > 0 })
	c.Close()
	d.Close() // which hands over what is left
	if out, err := program("copy", "--from", dir, "--to", x.url, "--config", x.config).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	y := x.start()
	doubted(t, y.Client, "other")
	until(t, "it is told", func() bool { return len(x.to.told(t)) > 1 })
	until(t, "all is delivered", func() bool {
		return metric(t, y, "tgad_log_cursor") != "0" && metric(t, y, `tgad_audit_lag{audit="hook"}`) == "0"
	})
	y.end(syscall.SIGTERM)
	if got := strings.Join(x.to.told(t), ", "); got != "new first, new other" {
		t.Errorf("told: %s", got)
	}
	x.to.mu.Lock()
	defer x.to.mu.Unlock()
	seen := map[string]bool{}
	for _, p := range x.to.posts {
		for _, id := range p.ids {
			if seen[id] {
				t.Errorf("record %s came again", id)
			}
			seen[id] = true
		}
	}
	if len(seen) < 6 {
		t.Errorf("%d records", len(seen))
	}
}

// TestReceiversMoveWithTheirStore: a store moves to another shard and back while its daemon delivers. The daemon goes on where it
// stood: each record comes, in order, and of each move one batch at most comes again.
func TestReceiversMoveWithTheirStore(t *testing.T) {
	serial.Long(t)
	one, two := twoShards(t)
	x := newDelivering(t, "[[audit]]\nid = \"hook\"", time.Second)
	text, err := os.ReadFile(x.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(x.config, []byte(strings.Replace(string(text), fmt.Sprintf("shard = %d", x.shard), `namespace = "a"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	x.url, x.shard, x.server = pgserver.DSN(one), 1, filepath.Join(one.Dir, socketName)
	d := x.start()
	n := 0
	calls := func() {
		t.Helper()
		for range 20 {
			n++
			q := call("charge", fmt.Sprint("k", n))
			q.Namespace = "a"
			if _, err := d.Call(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
	}
	calls()
	for _, to := range []struct {
		name     string
		from, to *pgserver.Server
	}{{"two", one, two}, {"one", two, one}} {
		pg(t, to.name, "move", "a", "--from", pgserver.DSN(to.from), "--to", pgserver.DSN(to.to))
		calls()
	}
	x.settled()
	want := records(t, d)
	if len(want) != 4*n {
		t.Errorf("%d records of %d calls", len(want), n)
	}
	x.wantOnce(want, 2)
}
