package daemon

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// retentionBench is a daemon with rules and a clock that the test moves.
func retentionBench(t *testing.T, config string) (b *bench, ahead *atomic.Int64) {
	b, ahead = setup(t, config), new(atomic.Int64)
	b.clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	return b, ahead
}

// TestRetention: a day later what the rules name is in a file of the archive and gone from the store,
// which proves as before that it was there. A repeated call is not sent again, and its caller is told.
// What no rule names, and what is not over, is as it was.
func TestRetention(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "archive")
	b, ahead := retentionBench(t, `
[retention]
archive = "`+archive+`"
[[retention.rule]]
tool = "balance"
[[retention.rule]]
server = "pay"
classes = ["success", "side_effect_committed"]
erase_after = "24h"
`)
	b.start()
	paid, err := b.client.Call(t.Context(), charge("paid"))
	if err != nil || paid.State != tga.Completed {
		t.Fatal(paid, err)
	}
	read := charge("read")
	read.Tool = "balance"
	kept, err := b.client.Call(t.Context(), read)
	if err != nil {
		t.Fatal(err)
	}
	b.tool.respond(func(http.ResponseWriter, *http.Request, []byte) { panic(http.ErrAbortHandler) })
	opaque := charge("doubt")
	opaque.Tool = "charge_opaque"
	if _, err := b.client.Call(t.Context(), opaque); tga.CodeOf(err) != tga.EffectInDoubt {
		t.Fatal(err)
	}
	b.tool.respond(nil)
	entries := func() (all []wire.Entry) {
		for e, err := range b.client.Entries(t.Context(), paid.TraceID, 0, false) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		return all
	}
	before := entries()

	retain := func(dry bool, want ...wire.RetainedRule) wire.Retained {
		t.Helper()
		done, err := client.Retain(t.Context(), b.client, wire.RetentionRequest{DryRun: dry})
		if err != nil || len(done.Rules) != len(want) {
			t.Fatalf("%+v %v", done, err)
		}
		for i, r := range done.Rules {
			r.Archived = ""
			if r != want[i] {
				t.Errorf("rule %d: %+v, want %+v", i+1, r, want[i])
			}
		}
		return done
	}
	retain(false, wire.RetainedRule{Rule: 1}, wire.RetainedRule{Rule: 2})
	ahead.Store(int64(25 * time.Hour))
	retain(true, wire.RetainedRule{Rule: 1}, wire.RetainedRule{Rule: 2, Due: 1})
	if _, err := os.Stat(archive); err == nil {
		t.Error("a dry run wrote an archive")
	}
	file := retain(false, wire.RetainedRule{Rule: 1}, wire.RetainedRule{Rule: 2, Due: 1, Erased: 1}).Rules[1].Archived
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if rep, err := ndjson.Verify(strings.NewReader(string(raw))); err != nil || rep.Traces != 1 || rep.Documents != 1 || rep.Erased != 0 {
		t.Errorf("%+v %v", rep, err)
	}
	for i, e := range entries() {
		if string(e.Entry) != string(before[i].Entry) || string(e.Artifact) != "null" || !strings.Contains(string(raw), string(e.Entry)) {
			t.Errorf("entry %d: %s %s", i+1, e.Entry, e.Artifact)
		}
	}
	if _, err := b.client.Call(t.Context(), charge("paid")); tga.CodeOf(err) != tga.IdempotencyKeyExpired || b.tool.sends("paid") != 1 {
		t.Errorf("repeated: %v, %d sends", err, b.tool.sends("paid"))
	}
	if again, err := b.client.Call(t.Context(), read); err != nil || string(again.Value) != string(kept.Value) {
		t.Errorf("kept: %s %v", again.Value, err)
	}
	if all, err := b.client.InDoubt(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("in doubt: %+v %v", all, err)
	}
	if v, err := b.client.Verify(t.Context(), tga.ID{}); err != nil || !v.OK {
		t.Errorf("%+v %v", v, err)
	}
	if n, ok := b.scrape("tgad_retention_erased_total"), b.scrape("tgad_retention_run_success"); n != 1 || ok != 1 {
		t.Errorf("%v erased, success %v", n, ok)
	}
}

// TestDaemonRetainsByItself: by the rules of now, which a reload brought.
func TestDaemonRetainsByItself(t *testing.T) {
	b, ahead := retentionBench(t, "[retention]\nevery = \"1s\"\n[[retention.rule]]\ntool = \"balance\"\n")
	b.start()
	if _, err := b.client.Call(t.Context(), charge("paid")); err != nil {
		t.Fatal(err)
	}
	ahead.Store(int64(2 * time.Hour))
	b.mustReload("retention.rule.tool retention.rule.erase_after retention.rule.drop", "[[retention.rule]]\ntool = \"balance\"\n", "[[retention.rule]]\ntool = \"charge\"\nerase_after = \"1h\"\ndrop = true\n")
	for end := time.Now().Add(time.Minute); b.scrape("tgad_retention_erased_total") != 1; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing was erased")
		}
	}
}

// TestRetentionIsRefused: without rules, and with an archive that would lie within the store.
func TestRetentionIsRefused(t *testing.T) {
	b := start(t, "")
	if _, err := client.Retain(t.Context(), b.client, wire.RetentionRequest{}); tga.CodeOf(err) != tga.ValidationError {
		t.Error(err)
	}
	for _, dir := range []string{"", "/", "/log", "/x/y", "/../elsewhere/y"} { // elsewhere is a link to it
		b := setup(t, "")
		if err := os.Symlink(b.data, filepath.Join(b.dir, "elsewhere")); err != nil {
			t.Fatal(err)
		}
		b.config = strings.Replace(b.config, "[store]", "[retention]\narchive = \""+b.data+dir+"\"\n[[retention.rule]]\nerase_after = \"1s\"\n[store]", 1)
		b.start()
		if _, err := client.Retain(t.Context(), b.client, wire.RetentionRequest{DryRun: true}); tga.CodeOf(err) != tga.ValidationError || !strings.Contains(err.Error(), "within the store") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestFailedRetentionIsRunAgain: a run that failed because the archive was away is made again soon, and not a day later.
func TestFailedRetentionIsRunAgain(t *testing.T) {
	defer func(look, retry time.Duration) { retentionLook, retentionRetry = look, retry }(retentionLook, retentionRetry)
	retentionLook, retentionRetry = 10*time.Millisecond, 50*time.Millisecond
	archive := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(archive, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := setup(t, "[retention]\nevery = \"24h\"\narchive = \""+archive+"\"\n[[retention.rule]]\nserver = \"pay\"\nerase_after = \"1s\"\n")
	b.start()
	if _, err := b.client.Call(t.Context(), charge("k")); err != nil {
		t.Fatal(err)
	}
	b.stop()
	time.Sleep(time.Second) // until it is due
	b.start()
	b.until("tgad_retention_run_success", func(n float64) bool { return n == 0 })
	if err := os.Remove(archive); err != nil {
		t.Fatal(err)
	}
	b.until("tgad_retention_erased_total", func(n float64) bool { return n == 1 })
	b.until("tgad_retention_run_success", func(n float64) bool { return n == 1 })
	b.stop()
}

// TestRetentionPassesTracesWithoutAKey: a trace whose key the ring lacks keeps the rules from no other one.
func TestRetentionPassesTracesWithoutAKey(t *testing.T) {
	b, ring := setup(t, "[retention]\n[[retention.rule]]\nserver = \"pay\"\nerase_after = \"1s\"\ndrop = true\n"), new(chaintest.Ring)
	b.tune = func(o *Options) {
		tune := o.Tune
		o.Tune = func(e *engine.Options) { tune(e); e.Keyring = ring }
	}
	b.start()
	for _, key := range []string{"lost", "there"} {
		if _, err := b.client.Call(t.Context(), charge(key)); err != nil {
			t.Fatal(err)
		}
	}
	b.stop()
	ring.Lose(1)
	time.Sleep(time.Second) // until it is due
	b.start()
	done, err := client.Retain(t.Context(), b.client, wire.RetentionRequest{})
	if err != nil || done.Unreadable != 1 || done.Rules[0].Erased != 1 {
		t.Errorf("%+v %v", done, err)
	}
}
