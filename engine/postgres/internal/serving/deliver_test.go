package serving_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/internal/audit"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

// post is what a receiver took at once.
type post struct {
	from        string // name of the daemon
	after, last uint64 // of the log
	ids         []string
	body        []byte
}

// receiver is a webhook outside of the fleet, which remembers what it took.
type receiver struct {
	*httptest.Server
	secret string
	mu     sync.Mutex
	posts  []post
	answer func() (takes, says bool) // whether it takes a post, and what it answers; nil: it does, and says so
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{secret: filepath.Join(t.TempDir(), "secret")}
	if err := os.WriteFile(r.secret, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return // its sender was killed
		}
		p := post{from: q.Header.Get("X-Daemon"), body: body}
		var records []struct{ ID string }
		if _, err := fmt.Sscanf(q.Header.Get("Webhook-Id"), "hook-%d-%d", &p.after, &p.last); err == nil {
			if err := json.Unmarshal(body, &records); err != nil {
				t.Errorf("a post of %d bytes: %v", len(body), err)
			}
		}
		for _, r := range records {
			p.ids = append(p.ids, r.ID)
		}
		takes, says := true, true
		if r.answer != nil {
			takes, says = r.answer()
		}
		if takes {
			r.mu.Lock()
			r.posts = append(r.posts, p)
			r.mu.Unlock()
		}
		if !says {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

func (r *receiver) took() []post {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]post(nil), r.posts...)
}

// from are the daemons that the newest posts behind so many are of.
func (r *receiver) from(behind int) map[string]bool {
	names := map[string]bool{}
	for _, p := range r.took()[behind:] {
		names[p.from] = true
	}
	return names
}

// delivering are daemons of one store that deliver to one receiver, each on a way of its own to the database.
type delivering struct {
	*fleet
	to      *receiver
	table   string        // of the receiver, in the configuration
	lease   time.Duration // of the store
	server  string        // socket of the database
	daemons []*daemon
	ways    map[*daemon]*way
	names   map[*daemon]string
	started int
}

// newDelivering prepares daemons with the table of a receiver, or without one.
func newDelivering(t *testing.T, table string, short time.Duration) *delivering {
	t.Helper()
	s, err := common.Server()
	if err != nil {
		t.Fatal(err)
	}
	x := &delivering{fleet: newFleet(t, "", ""), to: newReceiver(t), lease: short, server: filepath.Join(s.Dir, socketName), ways: map[*daemon]*way{}, names: map[*daemon]string{}}
	if table == "" {
		return x
	}
	x.table = fmt.Sprintf("\n%s\ntype = \"webhook\"\nurl = %q\nsecret_file = %q\n", table, x.to.URL, x.to.secret)
	return x
}

// start starts one more daemon.
func (x *delivering) start() *daemon {
	x.t.Helper()
	name := fmt.Sprint("d", x.started)
	x.started++
	w := newWay(x.t, filepath.Join(x.dir, name+"-db"))
	w.leadTo(x.server)
	text, err := os.ReadFile(x.config)
	if err != nil {
		x.t.Fatal(err)
	}
	headers := filepath.Join(x.dir, name+"-headers")
	own := *x.fleet
	own.config = filepath.Join(x.dir, name+".toml")
	own.url = "postgres://owner@/postgres?" + url.Values{"host": {filepath.Dir(w.listener.Addr().String())}, "connect_timeout": {"2"}}.Encode()
	conf := strings.Replace(string(text), fmt.Sprintf("lease = %q", lease), fmt.Sprintf("lease = %q", x.lease), 1) + x.table
	if x.table != "" {
		conf += fmt.Sprintf("headers_file = %q\n", headers)
	}
	if err := os.WriteFile(headers, []byte("X-Daemon: "+name+"\n"), 0o600); err != nil {
		x.t.Fatal(err)
	}
	if err := os.WriteFile(own.config, []byte(conf), 0o600); err != nil {
		x.t.Fatal(err)
	}
	d := own.start(name)
	x.ways[d], x.names[d] = w, name
	x.daemons = append(x.daemons, d)
	return d
}

// scan asks the database itself.
func (x *delivering) scan(to any, statement string, args ...any) {
	x.t.Helper()
	c, err := pgx.Connect(x.t.Context(), x.url)
	if err == nil {
		err = c.QueryRow(x.t.Context(), statement, args...).Scan(to)
		_ = c.Close(context.Background())
	}
	if err != nil {
		x.t.Fatal(err)
	}
}

// onDuty is the place of the daemon that delivers, as the database has it; -1 where none of those that run does.
func (x *delivering) onDuty(duty string) int {
	x.t.Helper()
	var name string
	x.scan(&name, "SELECT coalesce((SELECT s.name FROM tgad.duties d JOIN tgad.sessions s USING (shard, session) WHERE shard = $1 AND duty = $2), '')", x.shard, duty)
	for i, d := range x.daemons {
		if strings.HasSuffix(name, fmt.Sprint(" ", d.cmd.Process.Pid)) {
			return i
		}
	}
	return -1
}

// metric is what a daemon says of itself.
func metric(t *testing.T, d *daemon, name string) string {
	t.Helper()
	text, err := d.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (.*)$`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no %s: %s", name, text)
	}
	return string(m[1])
}

// records are the ids of all records of the store, in order.
func records(t *testing.T, d *daemon) (ids []string) {
	t.Helper()
	r := audit.NewReader(d.Trace)
	for line, err := range d.Log(t.Context(), "", false) {
		if err != nil {
			t.Fatal(err)
		}
		all, err := r.Records(t.Context(), line)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			ids = append(ids, all[i].ID)
		}
	}
	return ids
}

// settled waits until all calls came to their end and all is delivered, and each daemon knows; also one that delivers nothing.
func (x *delivering) settled() {
	x.t.Helper()
	until(x.t, "all calls came to their end, all is delivered, and each daemon knows", func() bool {
		// What a daemon let go of may be in doubt, and nobody asks for it again.
		if _, err := x.daemons[0].RecoverAll(x.t.Context()); err != nil {
			x.t.Log("recover: ", err)
		}
		var newest string
		x.scan(&newest, `SELECT coalesce(max(index), 0)::text FROM tgad.leaves WHERE shard = $1 AND NOT EXISTS (SELECT 1 FROM tgad.heads WHERE shard = $1 AND state BETWEEN 1 AND 3)
			AND NOT EXISTS (SELECT 1 FROM tgad.pending WHERE shard = $1)`, x.shard)
		so := true
		for _, d := range x.daemons {
			so = so && metric(x.t, d, "tgad_log_cursor") == newest && metric(x.t, d, `tgad_audit_lag{audit="hook"}`) == "0"
		}
		return so
	})
}

// wantOnce: each record came, in the order of the log. What came again is the batch that was delivered last and whose cursor was
// not kept, or one batch of a daemon that was in the middle of handing it over when it stood still or was cut off: at most
// late times.
func (x *delivering) wantOnce(want []string, late int) {
	t := x.t
	t.Helper()
	at := make(map[string]int, len(want))
	for i, id := range want {
		at[id] = i
	}
	var far, newest uint64 // the cursor that was reached, and the one that the batch which reached it began at
	var epoch int
	next, again, stale, runs := 0, 0, 0, 0
	posts := x.to.took()
	for i, p := range posts {
		if i == 0 || p.from != posts[i-1].from {
			runs++
		}
		for k, id := range p.ids {
			pos, ok := at[id]
			switch {
			case !ok:
				t.Fatalf("%s is no record", id)
			case k > 0 && pos != at[p.ids[k-1]]+1, pos > next:
				t.Fatalf("post %d, from %s of %d to %d, has record %d, and %d was expected", i, p.from, p.after, p.last, pos, next)
			case pos < next:
				again++
			default:
				next++
			}
		}
		if p.after < newest {
			stale++
		}
		if p.last > far {
			far, newest = p.last, p.after
		}
	}
	x.scan(&epoch, "SELECT epoch FROM tgad.duties WHERE shard = $1 AND duty = 'audit/hook'", x.shard)
	t.Logf("%d records in %d posts, %d records again, %d late posts, %d changes of the daemon on duty", len(want), len(posts), again, stale, epoch-1)
	if next != len(want) {
		t.Errorf("%d records were delivered, and the store has %d", next, len(want))
	}
	if stale > late {
		t.Errorf("%d posts begin before the newest batch, want %d at most", stale, late)
	}
	if runs > epoch+2*late {
		t.Errorf("the daemon that delivers changed %d times, and %d were on duty one after the other", runs-1, epoch)
	}
}

// TestDeliverersAreKilled: the daemon that delivers is stopped, killed and cut off from the database under load, while the receiver
// refuses some posts and loses some answers. Another one goes on, and each record comes, in order.
func TestDeliverersAreKilled(t *testing.T) {
	deliverersAreKilled(t, 3, time.Second, 40*time.Millisecond)
}

// TestDeliverersAreKilledForLong is the same at random, and for longer.
func TestDeliverersAreKilledForLong(t *testing.T) {
	serial.Long(t)
	deliverersAreKilled(t, 60, lease, 5*time.Millisecond)
}

func deliverersAreKilled(t *testing.T, rounds int, short, pause time.Duration) {
	x := newDelivering(t, "[[audit]]\nid = \"hook\"", short)
	var refusing atomic.Bool
	var refused atomic.Int64
	x.to.answer = func() (takes, says bool) {
		if refusing.Load() {
			refused.Add(1)
			return false, false
		}
		time.Sleep(time.Duration(rand.N(20)) * time.Millisecond)
		switch rand.N(20) {
		case 0:
			return false, false
		case 1:
			return true, false // its answer is lost
		}
		return true, true
	}
	for range 3 {
		x.start()
	}
	var calls atomic.Int64
	var mu sync.Mutex
	some := func() *daemon {
		mu.Lock()
		defer mu.Unlock()
		return x.daemons[rand.N(len(x.daemons))]
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var load sync.WaitGroup
	for w := range 2 {
		load.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				wait, cancel := context.WithTimeout(ctx, 2*time.Second)
				res, err := some().Call(wait, call("charge", fmt.Sprint("w", w, " ", i)))
				cancel()
				if err == nil && res.State == tga.Completed {
					calls.Add(1)
				}
				time.Sleep(pause)
			}
		})
	}
	until(t, "something is delivered", func() bool { return len(x.to.took()) > 3 })
	late := 0
	for round := range rounds {
		victim := x.onDuty("audit/hook")
		if victim < 0 || round > 3 && rand.N(4) == 0 {
			victim = rand.N(len(x.daemons))
		}
		d := x.daemons[victim]
		if round%2 == 0 { // what was refused is for its successor
			refusing.Store(true)
			before := refused.Load()
			until(t, "a post is refused", func() bool { return refused.Load() > before })
		}
		posts := len(x.to.took())
		other := func() bool {
			names := x.to.from(posts)
			delete(names, x.names[d])
			return len(names) > 0
		}
		switch round % 3 {
		case 0:
			late++
			d.signal(syscall.SIGSTOP)
			refusing.Store(false)
			until(t, "another daemon delivers", other)
			time.Sleep(time.Duration(rand.N(300)) * time.Millisecond)
			d.signal(syscall.SIGCONT)
		case 1:
			d.end(syscall.SIGKILL)
			refusing.Store(false)
			until(t, "another daemon delivers", other)
			mu.Lock()
			x.daemons = append(x.daemons[:victim:victim], x.daemons[victim+1:]...)
			mu.Unlock()
			if rounds > 3 {
				n := len(x.daemons)
				fresh := x.start()
				mu.Lock()
				x.daemons = append(x.daemons[:n:n], fresh)
				mu.Unlock()
			}
		case 2:
			late++
			x.ways[d].set(func() { x.ways[d].cut = true })
			refusing.Store(false)
			until(t, "another daemon delivers", other)
			x.ways[d].heal()
		}
		if rounds > 3 {
			time.Sleep(time.Duration(rand.N(500)) * time.Millisecond)
		}
	}
	stop()
	load.Wait()
	x.settled()
	want := records(t, x.daemons[0])
	t.Logf("%d calls were answered", calls.Load())
	x.wantOnce(want, late)
}
