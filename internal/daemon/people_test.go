package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/notice"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// pager is a receiver of notices that keeps what it took.
type pager struct {
	*httptest.Server
	t       *testing.T
	secret  string // path
	mu      sync.Mutex
	notices []notice.Notice
	raw     []string
	came    chan struct{} // has one for each that came
	took    func(n *notice.Notice) bool
}

func newPager(t *testing.T) *pager {
	p := &pager{t: t, came: make(chan struct{}, 1000), secret: filepath.Join(t.TempDir(), "secret")}
	if err := os.WriteFile(p.secret, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return // its sender was killed
		}
		var n notice.Notice
		if err := json.Unmarshal(raw, &n); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		if r.Header.Get("Webhook-Id") != n.ID || !strings.HasPrefix(r.Header.Get("Webhook-Signature"), "v1,") {
			t.Errorf("notice %s has the headers %v", n.ID, r.Header)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.took != nil && !p.took(&n) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		p.notices, p.raw = append(p.notices, n), append(p.raw, string(raw))
		p.came <- struct{}{}
	}))
	t.Cleanup(p.Close)
	return p
}

// table is the [[notify]] of the pager, without a pause.
func (p *pager) table(more ...string) string {
	return fmt.Sprintf("\n[[notify]]\nid = \"pager\"\ntype = \"webhook\"\nurl = %q\nsecret_file = %q\npause = \"1ms\"\n%s\n", p.URL, p.secret, strings.Join(more, "\n"))
}

// until waits until f says of the notices that came that they are those.
func (p *pager) until(what string, f func([]notice.Notice) bool) []notice.Notice {
	p.t.Helper()
	patience := time.Minute
	if serial.Whole() { // a look at 10,000 doubts takes minutes under the race detector, beside other programs
		patience = 20 * time.Minute
	}
	late := time.After(patience)
	for {
		p.mu.Lock()
		got := slices.Clone(p.notices)
		p.mu.Unlock()
		if f(got) {
			return got
		}
		select {
		case <-p.came:
		case <-late:
			for _, n := range got {
				p.t.Logf("%s: %.1000s", n.Subject, n.Text)
			}
			p.t.Fatalf("%s: not in %s; %d notices came", what, patience, len(got))
		}
	}
}

// tells says how often notices name a matter of a trace, with its event.
func tells(all []notice.Notice, trace tga.ID, event string) (n int) {
	for i := range all {
		for j := range all[i].Matters {
			if m := &all[i].Matters[j]; m.TraceID == trace && m.Event == event {
				n++
			}
		}
	}
	return n
}

// about waits for the notice of a matter.
func (p *pager) about(trace tga.ID, event string) notice.Matter {
	p.t.Helper()
	all := p.until(event+" "+trace.String(), func(all []notice.Notice) bool { return tells(all, trace, event) > 0 })
	for _, n := range all {
		for _, m := range n.Matters {
			if m.TraceID == trace && m.Event == event {
				return m
			}
		}
	}
	return notice.Matter{}
}

// counted waits until the daemon knows that the pager took so many notices.
func (b *bench) counted(n int) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); b.scrape(`tgad_notify_taken_total{notify="pager"}`) != float64(n); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%v notices are counted, and %d were taken", b.scrape(`tgad_notify_taken_total{notify="pager"}`), n)
		}
	}
}

// doubtful makes a call that ends in doubt.
func (b *bench) doubtful(key string) tga.ID {
	b.t.Helper()
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) { w.WriteHeader(http.StatusInternalServerError) })
	res, err := b.client.Call(b.t.Context(), runtime.Request{Server: "pay", Tool: "charge_opaque", Key: key, Args: []byte(`{"card":"s3cret"}`), Intent: "pay with s3cret"})
	wantCode(b.t, err, tga.EffectInDoubt)
	return res.TraceID
}

const asksPeople = "[[rule]]\ntool = \"balance\"\ndecision = \"NEEDS_APPROVAL\"\nrationale = \"people look at it\"\n[[rule]]\ndecision = \"APPROVE\"\n"

// TestPeopleAreToldOfDoubtsAndDecisions: a notice says what waits, whose it is, why, and which command settles it,
// but has nothing of the call's content. Later it says that it is settled, and by whom. A failing receiver does
// not affect the others.
func TestPeopleAreToldOfDoubtsAndDecisions(t *testing.T) {
	p := newPager(t)
	b := start(t, asksPeople+p.table(`after = "1ms"`, `resolved = true`, `ui = "http://127.0.0.1:8321"`)+
		"[[notify]]\nid = \"broken\"\ntype = \"command\"\ncommand = [\"sh\", \"-c\", \"echo no way; exit 1\"]\nafter = \"1ms\"\n")
	doubt := b.doubtful("k-doubt")
	m := p.about(doubt, "new")
	find := " --socket " + b.socket
	want := []string{
		"tgad show " + doubt.String() + find,
		"tgad resolve " + doubt.String() + " --outcome ran --evidence 'how you know'" + find,
		"tgad resolve " + doubt.String() + " --outcome not-run --attempts 1 --evidence 'how you know'" + find,
		"tgad abandon " + doubt.String() + " --reason 'why'" + find,
	}
	if m.Kind != config.OnDoubt || m.Server != "pay" || m.Tool != "charge_opaque" || m.Key != "k-doubt" || m.Namespace != "default" || m.Licence != "park" || m.Attempts != 1 ||
		!strings.Contains(m.Cause, "500") || !slices.Equal(m.Commands, want) || m.Link != "http://127.0.0.1:8321/traces/"+doubt.String() {
		t.Errorf("told %+v", m)
	}
	asked, err := b.client.Call(t.Context(), runtime.Request{Server: "pay", Tool: "balance", Key: "k-ask", Args: []byte(`{"card":"s3cret"}`)})
	wantCode(t, err, tga.EscalationRequired)
	m = p.about(asked.TraceID, "new")
	if m.Kind != config.OnApproval || m.Tool != "balance" || m.Key != "k-ask" || m.Cause != "people look at it" ||
		!slices.Contains(m.Commands, "tgad approve "+asked.TraceID.String()+" --rationale 'why it may run'"+find) {
		t.Errorf("told %+v", m)
	}
	if _, err := b.client.Abandon(t.Context(), doubt, "nobody can tell"); err != nil {
		t.Fatal(err)
	}
	me := config.PeerName(uint32(os.Geteuid()))
	if m = p.about(doubt, "resolved"); m.State != "FAILED" || m.Cause != "settled by "+me || m.Tool != "charge_opaque" || len(m.Commands) > 0 {
		t.Errorf("told %+v", m)
	}
	if _, err := b.client.Decide(t.Context(), asked.TraceID, wire.DecideRequest{Rationale: "it is not wanted"}); err != nil && !errors.Is(err, tga.PolicyViolation) {
		t.Fatal(err)
	}
	if m = p.about(asked.TraceID, "resolved"); m.State != "DENIED" || m.Cause != "decided by "+me {
		t.Errorf("told %+v", m)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, raw := range p.raw {
		if strings.Contains(raw, "s3cret") || !strings.Contains(p.notices[i].Text, p.notices[i].Matters[0].TraceID.String()) {
			t.Errorf("the notice is %s", raw)
		}
	}
	b.counted(len(p.notices))
	for end := time.Now().Add(time.Minute); b.scrape(`tgad_notify_failures_total{notify="broken"}`) == 0 || b.scrape(`tgad_notify_late_seconds{notify="broken"}`) != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the receiver that fails is not counted, or is late with what is settled")
		}
	}
}

// TestKilledDaemonTellsAgain: SIGKILL after the receiver has taken a notice, before and after the daemon knows
// that. In the first case the notice is sent again with the same id, and in the second it is not.
func TestKilledDaemonTellsAgain(t *testing.T) {
	p := newPager(t)
	b := setup(t, p.table(`after = "1ms"`))
	cmd := b.command(nil)
	p.mu.Lock()
	p.took = func(*notice.Notice) bool {
		_ = cmd.Process.Kill() // it gets no answer
		return true
	}
	p.mu.Unlock()
	first := b.doubtful("k-1")
	p.about(first, "new")
	_ = cmd.Wait() // killed: it has no good exit
	b.client.Close()

	p.mu.Lock()
	p.took = nil
	p.mu.Unlock()
	cmd = b.command(nil)
	all := p.until("told again", func(all []notice.Notice) bool { return tells(all, first, "new") == 2 })
	if len(all) != 2 || all[0].ID != all[1].ID {
		t.Errorf("the notice has the id %s, and the same again %s", all[0].ID, all[1].ID)
	}
	// Once it is known that it was taken: the next notice tells of something else.
	second := b.doubtful("k-2")
	p.about(second, "new")
	b.counted(2)
	for range 100 {
		raw, err := os.ReadFile(filepath.Join(b.data, "notify", "pager"))
		if err == nil && strings.Count(string(raw), `"told"`) == 3 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	b.client.Close()
	b.start()
	third := b.doubtful("k-3")
	p.about(third, "new")
	all = p.until("all", func([]notice.Notice) bool { return true })
	if tells(all, first, "new") != 2 || tells(all, second, "new") != 1 || tells(all, third, "new") != 1 {
		t.Errorf("told of the first %d times, of the second %d, of the third %d", tells(all, first, "new"), tells(all, second, "new"), tells(all, third, "new"))
	}
}

// TestRecoveryThatSettlesWakesNobody: of two calls that a crash left in doubt, no notice tells of the one that
// recovery sends again by its licence.
func TestRecoveryThatSettlesWakesNobody(t *testing.T) {
	p := newPager(t)
	b := setup(t, p.table(`after = "2s"`))
	hang := make(chan struct{})
	var both sync.WaitGroup
	var reached sync.WaitGroup
	reached.Add(2)
	b.tool.respond(func(http.ResponseWriter, *http.Request, []byte) {
		reached.Done()
		<-hang
	})
	cmd := b.command(nil)
	for _, tool := range []string{"charge", "charge_opaque"} {
		both.Go(func() {
			if _, err := b.client.Call(t.Context(), runtime.Request{Server: "pay", Tool: tool, Key: "k-" + tool}); err == nil {
				t.Error("a call has an answer of a daemon that was killed")
			}
		})
	}
	reached.Wait()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	both.Wait()
	b.client.Close()
	b.tool.respond(nil)
	close(hang)
	b.start()
	all := p.until("the doubt", func(all []notice.Notice) bool { return len(all) > 0 })
	if len(all[0].Matters) != 1 || all[0].Matters[0].Tool != "charge_opaque" || all[0].Waiting[config.OnDoubt] != 1 {
		t.Errorf("told %+v", all)
	}
}

// TestReloadChangesWhoIsTold: after a reload, a new receiver is told of what waits, a kept receiver is not told
// again, and a removed one gets nothing more. If the keys of a receiver cannot be read, the whole reload is refused.
func TestReloadChangesWhoIsTold(t *testing.T) {
	p, second := newPager(t), newPager(t)
	b := start(t, p.table(`after = "1ms"`))
	first := b.doubtful("k-1")
	p.about(first, "new")
	table := strings.Replace(second.table(`after = "1ms"`), `"pager"`, `"second"`, 1)
	good := b.config
	if _, err := b.reload(p.table(`after = "1ms"`), p.table(`after = "1ms"`)+strings.Replace(table, second.secret, second.secret+"-none", 1)); !errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), "notify second") {
		t.Fatalf("keys that are not there: %v", err)
	}
	b.config = good
	b.mustReload("notify", p.table(`after = "1ms"`), p.table(`after = "1ms"`)+table)
	second.about(first, "new")
	next := b.doubtful("k-2")
	p.about(next, "new")
	second.about(next, "new")
	b.mustReload("notify notify.id notify.url notify.secret_file", p.table(`after = "1ms"`), "")
	last := b.doubtful("k-3")
	second.about(last, "new")
	all := p.until("all", func([]notice.Notice) bool { return true })
	if tells(all, first, "new") != 1 || tells(all, next, "new") != 1 || tells(all, last, "new") != 0 {
		t.Errorf("the first receiver was told %+v", all)
	}
	if got, err := client.Notify(t.Context(), b.client, false); err != nil || len(got.Receivers) != 1 || got.Receivers[0].ID != "second" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestPeopleAreToldOfAFrozenStore: and of the calls in it that wait, and when it is taken into service.
func TestPeopleAreToldOfAFrozenStore(t *testing.T) {
	p := newPager(t)
	b := start(t, "")
	doubt := b.doubtful("k")
	backup := filepath.Join(b.dir, "copy")
	if err := b.client.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.data = filepath.Join(b.dir, "restored")
	if err := engine.Restore(t.Context(), backup, b.data, engine.Options{}); err != nil {
		t.Fatal(err)
	}
	b.config += p.table(`after = "1ms"`, `resolved = true`)
	b.start()
	all := p.until("frozen", func(all []notice.Notice) bool {
		for _, n := range all {
			if n.New[config.OnFrozen] == 1 {
				return true
			}
		}
		return false
	})
	if m := all[0].Matters[0]; m.Kind != config.OnFrozen || m.Cause == "" || !strings.HasPrefix(m.Commands[0], "tgad verify --socket ") {
		t.Errorf("told %+v", all[0])
	}
	p.about(doubt, "new")
	if err := b.client.Unfreeze(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	p.until("thawed", func(all []notice.Notice) bool { return all[len(all)-1].Resolved[config.OnFrozen] == 1 })
}

// TestManyDoubtsAreOneNotice: of real calls. In make accept there are 10,000.
func TestManyDoubtsAreOneNotice(t *testing.T) {
	most := 40
	if serial.Whole() {
		most = 10000
	}
	p := newPager(t)
	b := setup(t, "")
	b.config = strings.Replace(b.config, "concurrency = 64", "concurrency = 64\nbreaker = { failures = 1000000 }", 1)
	b.start()
	var callers sync.WaitGroup
	b.doubtful("k-0")
	for i := range 8 {
		callers.Go(func() {
			for n := 1 + i; n < most; n += 8 {
				if _, err := b.client.Call(t.Context(), runtime.Request{Server: "pay", Tool: "charge_opaque", Key: fmt.Sprint("k-", n)}); !errors.Is(err, tga.EffectInDoubt) {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	doubts, err := b.client.InDoubt(t.Context())
	if err != nil || len(doubts) != most {
		t.Fatal(len(doubts), err)
	}
	b.mustReload("notify", "[store]", p.table(`after = "1ms"`)+"[store]")
	all := p.until("told", func(all []notice.Notice) bool { return len(all) > 0 })
	if n := all[0]; n.New[config.OnDoubt] != len(doubts) || len(n.Matters) != min(10, len(doubts)) || n.More != max(0, len(doubts)-10) || len(p.raw[0]) > 64<<10 {
		t.Errorf("%d doubts: told of %v, %d by name, %d more, in %d bytes", len(doubts), n.New, len(n.Matters), n.More, len(p.raw[0]))
	}
	// Settled at once, none is told again.
	one := b.doubtful("the last")
	p.about(one, "new")
	if all := p.until("all", func([]notice.Notice) bool { return true }); len(all) != 2 {
		t.Errorf("%d notices", len(all))
	}
	t.Logf("%d doubts", len(doubts))
}

// damaged is a store of which one trace fails a check.
type damaged struct {
	Store
	trace tga.ID
}

func (s damaged) Load(ctx context.Context, id tga.ID) (*chain.Trace, error) {
	if id == s.trace {
		return nil, tga.Errorf(tga.StateRecoveryFailed, "entry 1 has another digest").In(id)
	}
	return s.Store.Load(ctx, id)
}

// TestQuarantinedTraceIsTold: a trace that fails a check is a matter for people, with its namespace as far as that
// is known. As long as it fails, it does not count as settled.
func TestQuarantinedTraceIsTold(t *testing.T) {
	b := start(t, "")
	begun, err := b.client.Begin(t.Context(), runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: "charge", Key: "r1"}, BeginID: "b1"})
	if err != nil {
		t.Fatal(err)
	}
	id := begun.Result.TraceID
	b.stop()
	o := b.options()
	o.Clock = time.Now
	d, err := open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}()
	whole := d.db
	d.db = damaged{whole, id}
	if d.rt, err = runtime.New(d.db, d.tools, d.tools.Supervisor(), d.tools.Options()); err != nil {
		t.Fatal(err)
	}
	w := waiting{d}
	all, err := w.Waiting(t.Context())
	if err != nil || len(all) != 1 || all[0].Kind != config.OnQuarantined || all[0].TraceID != id || all[0].Namespace != "default" || !strings.Contains(all[0].Cause, "another digest") {
		t.Fatalf("%+v, %v", all, err)
	}
	m := all[0]
	if err := w.Complete(t.Context(), &m); err != nil || len(m.Commands) != 1 || !strings.HasPrefix(m.Commands[0], "tgad verify "+id.String()) {
		t.Errorf("%+v, %v", m, err)
	}
	if fate, err := w.Fate(t.Context(), &notice.Matter{Kind: config.OnQuarantined, TraceID: id}); fate != notice.Open || !errors.Is(err, tga.StateRecoveryFailed) {
		t.Errorf("fate %d, %v", fate, err)
	}
	d.db = whole
	if fate, err := w.Fate(t.Context(), &notice.Matter{Kind: config.OnQuarantined, TraceID: id}); fate != notice.Settled || err != nil {
		t.Errorf("whole again: fate %d, %v", fate, err)
	}
	if fate, err := w.Fate(t.Context(), &notice.Matter{Kind: config.OnDoubt, TraceID: newID()}); fate != notice.Settled || err != nil {
		t.Errorf("a trace that is not there: fate %d, %v", fate, err)
	}
}

// unloadable is a store that cannot give one trace.
type unloadable struct {
	Store
	err error
}

func (u unloadable) Load(context.Context, tga.ID) (*chain.Trace, error) { return nil, u.err }

// TestDamagedTraceKeepsNobodyFromHearing: if people are asked about a record whose trace fails a check, the notice
// says so. Only if the store cannot be read at all, it is not known what waits.
func TestDamagedTraceKeepsNobodyFromHearing(t *testing.T) {
	for code, told := range map[tga.Code]bool{tga.StateRecoveryFailed: true, tga.NotFound: true, tga.StoreUnavailable: false} {
		m := notice.Matter{Kind: config.OnApproval, TraceID: newID(), Cause: "the record is old"}
		err := waiting{&Daemon{db: unloadable{err: tga.Errorf(code, "no trace")}}}.asked(t.Context(), &m)
		if (err == nil) != told || told && !strings.Contains(m.Cause, string(code)) {
			t.Errorf("%s: %v, cause %q", code, err, m.Cause)
		}
	}
}
