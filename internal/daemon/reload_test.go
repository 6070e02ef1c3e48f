package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/testlog"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// reload has the daemon read its configuration again, after words in it were replaced.
func (b *bench) reload(replace ...string) ([]string, error) {
	b.t.Helper()
	text := strings.NewReplacer(replace...).Replace(b.config)
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(b.config, replace[i]) {
			b.t.Fatalf("the configuration has no %q", replace[i])
		}
	}
	b.mu.Lock()
	b.config = text
	b.mu.Unlock()
	done, err := client.Reload(b.t.Context(), b.client)
	return done.Changed, err
}

func (b *bench) mustReload(want string, replace ...string) {
	b.t.Helper()
	if changed, err := b.reload(replace...); err != nil || strings.Join(changed, " ") != want {
		b.t.Fatalf("changed %v, %v, want %s", changed, err, want)
	}
}

// TestReloadDropsNoCall: many callers call while their server is described in other words again and
// again, by several who reload at once. Each call has its answer and one effect.
func TestReloadDropsNoCall(t *testing.T) {
	b := start(t, "")
	var callers, operators sync.WaitGroup
	over := make(chan struct{})
	const each, calls = 8, 40
	for i := range each {
		callers.Go(func() {
			for j := range calls {
				res, err := b.client.Call(t.Context(), charge(fmt.Sprint(i, "-", j)))
				if err != nil || res.State != tga.Completed {
					t.Errorf("call %d of %d: %v, %v", j, i, res.State, err)
				}
			}
		})
	}
	// Each file that is read is another one, whoever has it read.
	n, was := 0, b.config
	again := func() error {
		b.mu.Lock()
		n++
		b.config = strings.Replace(was, "concurrency = 64", fmt.Sprint("concurrency = ", 64+n), 1)
		b.mu.Unlock()
		_, err := client.Reload(t.Context(), b.client)
		return err
	}
	for range 2 {
		operators.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if err := again(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	close(over)
	operators.Wait()
	if n < 4 {
		t.Errorf("%d reloads", n)
	}
	for i := range each {
		for j := range calls {
			if sends := b.tool.sends(fmt.Sprint(i, "-", j)); sends != 1 {
				t.Errorf("call %d of %d was sent %d times", j, i, sends)
			}
		}
	}
}

// TestReloadAppliesAllOrNothing: a file with a mistake is refused in the words of its check, one
// that changes what takes a restart by the names of its keys; then the old one holds, in every part.
func TestReloadAppliesAllOrNothing(t *testing.T) {
	b := start(t, "")
	good := b.config
	b.mustReload("")
	for _, c := range []struct{ from, to, want string }{
		{"window = \"24h\"", "window = \"24h\"\nwindwo = 1", "test.toml:"},
		{"low_water_bytes = 1", "low_water_bytes = 2", "needs a restart: store.low_water_bytes"},
		{"allow_all = true", "profile = \"spec-9.3\"\n[limits]\ndepth = 64\n[socket]\ngroup = \"0\"", "needs a restart: profile, socket.group, limits.depth"},
		{"concurrency = 64", "concurrency = 64\nheaders_file = \"/nowhere\"", "headers_file"},
	} {
		b.config = good
		// Something that could be applied stands beside it each time.
		_, err := b.reload(c.from, c.to, "server = \"pay\"\nname = \"charge_opaque\"\n", "server = \"pay\"\nname = \"charge_opaque\"\nclass = \"read\"\n")
		wantCode(t, err, tga.ValidationError)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.to, err)
		}
		if _, parse := assemble.Parse("test.toml", []byte(b.config)); parse != nil && err != nil && !strings.Contains(err.Error(), parse.Error()[strings.Index(parse.Error(), "test.toml"):]) {
			t.Errorf("the daemon says\n%v\nand the check\n%v", err, parse)
		}
		if ok := b.scrape("tgad_config_reload_success"); ok != 0 {
			t.Errorf("after a refusal the metric is %v", ok)
		}
		// The tool is a write tool still: without a key it is not called.
		_, err = b.client.Call(t.Context(), runtime.Request{Server: "pay", Tool: "charge_opaque", Args: []byte(`{}`)})
		if tga.CodeOf(err) == "" && b.tool.sends("") != 0 {
			t.Errorf("%q: a part of the file was applied: %v", c.to, err)
		}
		if res, err := b.client.Call(t.Context(), charge("after "+c.to[:8])); err != nil || res.State != tga.Completed {
			t.Errorf("after %q: %v, %v", c.to, res.State, err)
		}
	}
	b.config = good
	before := b.scrape("tgad_config_reload_success_timestamp_seconds")
	b.mustReload("tool.class", "name = \"charge_opaque\"\n", "name = \"charge_opaque\"\nclass = \"read\"\n")
	if ok, at := b.scrape("tgad_config_reload_success"), b.scrape("tgad_config_reload_success_timestamp_seconds"); ok != 1 || at < before || at == 0 {
		t.Errorf("the metrics are %v and %v, the time before was %v", ok, at, before)
	}
}

// TestStricterRulesHoldForWhatWaits: a request that waits for one vote waits for two, and its own
// submitter votes no more; a rule that is laxer changes nothing for it.
func TestStricterRulesHoldForWhatWaits(t *testing.T) {
	b := start(t, "[[rule]]\ndecision = \"NEEDS_APPROVAL\"\nrequired = 1\n")
	wait := func(key string) tga.ID {
		res, err := b.client.Call(t.Context(), charge(key))
		wantCode(t, err, tga.EscalationRequired)
		return res.TraceID
	}
	vote := func(id tga.ID) error {
		_, err := b.client.Decide(t.Context(), id, wire.DecideRequest{Approve: true, Rationale: "looked at by a person"})
		return err
	}
	first, second, third := wait("first"), wait("second"), wait("third")
	b.mustReload("rule.required", "required = 1", "required = 2")
	wantCode(t, vote(first), tga.EscalationRequired)
	b.mustReload("rule.required", "required = 2", "required = 1")
	_, err := b.client.Recover(t.Context(), first)
	wantCode(t, err, tga.EscalationRequired) // two were asked for once
	b.mustReload("approval.self", "self = true", "self = false")
	wantCode(t, vote(second), tga.PermissionDenied)
	b.mustReload("rule.decision rule.required", "decision = \"NEEDS_APPROVAL\"\nrequired = 1", "decision = \"DENY\"")
	if res, err := b.client.Recover(t.Context(), third); err != nil || res.State != tga.Denied {
		t.Errorf("a rule that denies: %v, %v", res.State, err)
	}
	b.mustReload("rule.decision", "decision = \"DENY\"", "decision = \"APPROVE\"")
	if res, err := b.client.Call(t.Context(), charge("fourth")); err != nil || res.State != tga.Completed {
		t.Errorf("a new call: %v, %v", res.State, err)
	}
	for key, want := range map[string]int{"first": 0, "second": 0, "third": 0, "fourth": 1} {
		if n := b.tool.sends(key); n != want {
			t.Errorf("%s was sent %d times, want %d", key, n, want)
		}
	}
}

// holding has the tool hold a call until it is let go.
func (b *bench) holding() (under chan struct{}, release func()) {
	under = make(chan struct{}, 16)
	over := make(chan struct{})
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		under <- struct{}{}
		<-over
		io.WriteString(w, `{}`)
	})
	return under, sync.OnceFunc(func() { close(over) })
}

// TestRemovedServerEndsItsCall: a call that is with a server when the file loses it comes to its
// end there; a new one finds no such server.
func TestRemovedServerEndsItsCall(t *testing.T) {
	b := start(t, "")
	under, release := b.holding()
	defer release()
	done := make(chan error, 1)
	go func() {
		res, err := b.client.Call(t.Context(), charge("under way"))
		if err == nil && res.State != tga.Completed {
			err = fmt.Errorf("it is %v", res.State)
		}
		done <- err
	}()
	<-under
	begin := strings.Index(b.config, "[[server]]\nid = \"pay\"")
	end := strings.Index(b.config, "[[server]]\nid = \"remote\"")
	tools := strings.Index(b.config, "[[tool]]")
	b.mustReload("server server.id server.type server.url server.concurrency tool",
		b.config[begin:end], "", b.config[tools:], "")
	_, err := b.client.Call(t.Context(), charge("new"))
	wantCode(t, err, tga.NotFound)
	release()
	if err := <-done; err != nil {
		t.Errorf("the call that was under way: %v", err)
	}
	if a, n := b.tool.sends("under way"), b.tool.sends("new"); a != 1 || n != 0 {
		t.Errorf("sent %d and %d times", a, n)
	}
}

// TestReloadedLicenceSendsNoOldDoubt: of calls in doubt none is sent again, where the licence is
// given after it, or taken back; one whose licence stays is.
func TestReloadedLicenceSendsNoOldDoubt(t *testing.T) {
	b := start(t, "")
	b.tool.respond(func(http.ResponseWriter, *http.Request, []byte) { panic(http.ErrAbortHandler) })
	ids := map[string]tga.ID{}
	for _, tool := range []string{"charge", "charge_opaque"} {
		req := charge(tool)
		req.Tool = tool
		res, err := b.client.Call(t.Context(), req)
		wantCode(t, err, tga.EffectInDoubt)
		ids[tool] = res.TraceID
	}
	before := map[string]int{"charge": b.tool.sends("charge"), "charge_opaque": b.tool.sends("charge_opaque")}
	b.tool.respond(nil)
	b.mustReload("tool.licence tool.window",
		"name = \"charge_opaque\"\n", "name = \"charge_opaque\"\nlicence = \"dedupe_args\"\n",
		"licence = \"dedupe_key\"\nwindow = \"24h\"\n", "licence = \"park\"\n")
	look := func(when string) {
		for tool, id := range ids {
			res, err := b.client.Recover(t.Context(), id)
			for errors.Is(err, tga.StateLockAcquireFailed) { // a daemon that starts looks at each open call itself
				time.Sleep(time.Millisecond)
				res, err = b.client.Recover(t.Context(), id)
			}
			if tga.CodeOf(err) != tga.EffectInDoubt {
				t.Errorf("%s, %s: %v, %v", when, tool, res.State, err)
			}
			if n := b.tool.sends(tool); n != before[tool] {
				t.Errorf("%s: the doubt of %s was sent, %d times more", when, tool, n-before[tool])
			}
		}
		all, err := b.client.InDoubt(t.Context())
		if err != nil || len(all) != 2 {
			t.Fatalf("%v, %v", all, err)
		}
		for _, o := range all {
			if strings.Contains(fmt.Sprint(o.Doubt.Settles), "recover") {
				t.Errorf("%s: it is said that a recovery settles %s: %v", when, o.ToolName, o.Doubt.Settles)
			}
		}
	}
	look("after a reload")
	b.stop()
	b.start()
	look("after a restart")
	req := charge("new")
	req.Tool = "charge_opaque"
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		if b.tool.sends("new") == 1 {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, `{}`)
	})
	if res, err := b.client.Call(t.Context(), req); err != nil || res.State != tga.Completed || b.tool.sends("new") != 2 {
		t.Errorf("a call under the new licence: %v, %v, sent %d times", res.State, err, b.tool.sends("new"))
	}
}

// TestRevokedRoleCountsAtOnce: on the connections that are there, and for a stream that is open.
func TestRevokedRoleCountsAtOnce(t *testing.T) {
	role := func(verbs string) string {
		return fmt.Sprintf("[[role]]\nuid = [%d]\nnamespace = \"*\"\nverbs = [%s]\n", os.Geteuid(), verbs)
	}
	all, left := role(`"read", "append", "decide", "admin"`), role(`"append", "admin"`)
	b := start(t, all)
	if _, err := b.client.Call(t.Context(), charge("before")); err != nil {
		t.Fatal(err)
	}
	open, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		first := true
		for _, err := range b.client.Log(t.Context(), "", true) {
			if err != nil {
				ended <- err
				return
			}
			if first {
				close(open)
			}
			first = false
		}
		ended <- nil
	}()
	<-open
	b.mustReload("role.verbs", all, left)
	wantCode(t, <-ended, tga.PermissionDenied)
	_, err := b.client.InDoubt(t.Context())
	wantCode(t, err, tga.PermissionDenied)
	if _, err := b.client.Call(t.Context(), charge("after")); err != nil {
		t.Error(err)
	}
	// Nobody is left who may reload, nor do anything.
	nobody := strings.Replace(left, fmt.Sprint("[", os.Geteuid(), "]"), "[65000]", 1)
	b.mustReload("role.uid", left, nobody)
	wantCode(t, b.client.Live(t.Context()), tga.PermissionDenied)
}

// TestLimitsFollow: a bound that is lower refuses what is one past it, and one that is higher takes
// it.
func TestLimitsFollow(t *testing.T) {
	b := start(t, "[limits]\nin_flight = 2\nbatch_items = 4\nleases = 3\n")
	under, release := b.holding()
	defer release()
	var calls sync.WaitGroup
	call := func(key string) {
		calls.Go(func() {
			if _, err := b.client.Call(t.Context(), charge(key)); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		})
		<-under
	}
	call("one")
	call("two")
	_, err := b.client.Call(t.Context(), charge("three"))
	wantCode(t, err, tga.LimitExceeded)
	b.mustReload("limits.in_flight limits.leases", "in_flight = 2", "in_flight = 3", "leases = 3", "leases = 1")
	call("four")
	_, err = b.client.Call(t.Context(), charge("five"))
	wantCode(t, err, tga.LimitExceeded)
	if _, err := b.client.Lease(t.Context(), newID(), 0); err != nil {
		t.Error(err)
	}
	_, err = b.client.Lease(t.Context(), newID(), 0)
	wantCode(t, err, tga.LimitExceeded)
	release()
	calls.Wait()
}

// TestHangupReloads: a signal does what the route does, its refusal is in the log as an error, and
// while the daemon drains it is refused.
func TestHangupReloads(t *testing.T) {
	b := setup(t, "")
	hangup, log := make(chan os.Signal), &testlog.Buffer{}
	b.tune = func(o *Options) {
		o.Hangup, o.Logger = hangup, slog.New(slog.NewTextHandler(log, nil))
	}
	b.start()
	b.config = strings.Replace(b.config, "concurrency = 64", "concurrency = 65", 1)
	hangup <- syscall.SIGHUP
	awaitLog(t, log, "level=INFO msg=\"configuration reloaded\" changed=[server.concurrency]")
	b.config = strings.Replace(b.config, "concurrency = 65", "concurrency = \"x\"", 1)
	hangup <- syscall.SIGHUP
	awaitLog(t, log, "level=ERROR msg=\"the new configuration was refused, the current one stays\"")
	awaitLog(t, log, "test.toml:")
	under, release := b.holding()
	defer release()
	done := make(chan error, 1)
	go func() {
		_, err := b.client.Call(context.WithoutCancel(t.Context()), charge("under way"))
		done <- err
	}()
	<-under
	b.cancel()
	awaitLog(t, log, "draining")
	b.config = strings.Replace(b.config, "concurrency = \"x\"", "concurrency = 66", 1)
	hangup <- syscall.SIGHUP
	awaitLog(t, log, "the daemon stops")
	release()
	if err := <-done; err != nil {
		t.Errorf("the call that was under way: %v", err)
	}
	b.stop()
}

// awaitLog waits until a log has some words.
func awaitLog(t *testing.T, l *testlog.Buffer, words string) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); !strings.Contains(l.String(), words); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the log has no %q:\n%s", words, l.String())
		}
	}
}
