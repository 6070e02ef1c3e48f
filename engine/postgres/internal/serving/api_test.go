package serving_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

const approvals = `
[[rule]]
server = "pay"
tool = "refund"
decision = "NEEDS_APPROVAL"

[[rule]]
decision = "APPROVE"
`

// TestWholeAPIAcrossDaemons: what is begun at one daemon is seen, decided and ended at another.
func TestWholeAPIAcrossDaemons(t *testing.T) {
	f := newFleet(t, "", approvals)
	a, b := f.start("a"), f.start("b")
	ctx := t.Context()

	// A stream at one daemon has what is appended at the other.
	following, stop := context.WithCancel(ctx)
	defer stop()
	lines := make(chan wire.LogLine, 1000)
	go func() {
		for line, err := range a.Log(following, "", true) {
			if err != nil {
				return
			}
			lines <- line
		}
	}()

	// A vote.
	_, err := a.Call(ctx, call("refund", "asked"))
	wantCode(t, err, tga.EscalationRequired)
	waiting, err := b.Approvals(ctx)
	if err != nil || len(waiting) != 1 {
		t.Fatalf("approvals: %v, %v", waiting, err)
	}
	asked := waiting[0].TraceID
	if res, err := b.Decide(ctx, asked, wire.DecideRequest{Approve: true, Rationale: "it is a test of it"}); err != nil || res.State != tga.Completed {
		t.Errorf("decide: %v, %v", res.State, err)
	}
	if line := <-lines; line.TraceID != asked {
		t.Errorf("the stream begins with trace %s, want %s", line.TraceID, asked)
	}

	// A permit.
	begun, err := a.Begin(ctx, runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: "charge", Key: "begun", Args: []byte(`{}`)}, BeginID: "begin-1"})
	if err != nil || begun.Standing != runtime.BeginSend {
		t.Fatalf("begin: %v, %v", begun.Standing, err)
	}
	reply := runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"ok":true}`)}
	if res, err := b.Finish(ctx, begun.Result.TraceID, begun.Permit, runtime.Finished{Reply: reply}); err != nil || res.State != tga.Completed {
		t.Errorf("finish: %v, %v", res.State, err)
	}

	// Doubts, ended by people at the other daemon.
	came, release := f.tool.held(t)
	for _, key := range []string{"doubt 1", "doubt 2"} {
		go func() { _, _ = a.Call(context.WithoutCancel(ctx), call("opaque", key)) }()
		<-came
	}
	a.end(syscall.SIGKILL)
	var doubts []wire.OpenTrace
	until(t, "two calls are in doubt", func() bool {
		doubts, err = b.InDoubt(ctx)
		return err == nil && len(doubts) == 2
	})
	release()
	failed := runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassPermanent, ErrorCode: "X", ErrorMessage: "looked at the tool"}
	if res, err := b.Resolve(ctx, doubts[0].TraceID, runtime.Resolution{Reply: failed, Evidence: []byte(`{"seen":1}`)}); err != nil || res.State != tga.Failed {
		t.Errorf("resolve: %v, %v", res.State, err)
	}
	if res, err := b.Abandon(ctx, doubts[1].TraceID, "it is a test of it"); err != nil || res.State != tga.Failed {
		t.Errorf("abandon: %v, %v", res.State, err)
	}

	rawAppends(t, b)
	reads(t, b, asked)
	lacks(t, b)
	sound(t, b)
}

// rawAppends appends a request of the peer's own, under a lease.
func rawAppends(t *testing.T, d *daemon) {
	t.Helper()
	ctx := t.Context()
	request := chaintest.Artifacts(chaintest.Options{Seed: uint64(time.Now().UnixNano())})[0]
	l, err := d.Lease(ctx, request.TraceID, 0)
	if err != nil {
		t.Fatalf("lease: %v", err)
	}
	if l, err = d.Renew(ctx, l, 0); err != nil {
		t.Errorf("renew: %v", err)
	}
	body := wire.AppendRequest{Lease: l.Lease, Artifacts: []wire.NewArtifact{{Artifact: request.Canonical}}}
	if done, err := d.Append(ctx, request.TraceID, body); err != nil || done.Head.Seq != 1 {
		t.Errorf("append: %+v, %v", done.Head, err)
	}
	again, err := d.AppendBatch(ctx, []wire.BatchItem{{TraceID: request.TraceID, AppendRequest: body}, {TraceID: chaintest.ID(1, 1), AppendRequest: body}})
	if err != nil || len(again) != 2 || again[0].Appended == nil || !again[0].Appended.Replayed || again[1].Problem == nil {
		t.Errorf("batch: %+v, %v", again, err)
	}
	if cp, err := d.Checkpoint(ctx, request.TraceID, l); err != nil || cp.Seq != 1 {
		t.Errorf("checkpoint: %+v, %v", cp, err)
	}
	if cp, err := d.LatestCheckpoint(ctx, request.TraceID); err != nil || cp.Seq != 1 {
		t.Errorf("latest checkpoint: %+v, %v", cp, err)
	}
	if _, err := d.Release(ctx, l); err != nil {
		t.Errorf("release: %v", err)
	}
}

// reads asks for everything about a trace.
func reads(t *testing.T, d *daemon, id tga.ID) {
	t.Helper()
	ctx := t.Context()
	timeline, err := d.Trace(ctx, id)
	if err != nil || len(timeline.Entries) != 4 {
		t.Fatalf("trace: %d entries, %v", len(timeline.Entries), err)
	}
	if s, err := d.State(ctx, id); err != nil || s.Current != tga.Completed {
		t.Errorf("state: %v, %v", s.Current, err)
	}
	n := 0
	for e, err := range d.Entries(ctx, id, 0, true) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; !bytes.Equal(e.Entry, timeline.Entries[n-1].Entry) {
			t.Errorf("entry %d is another", n)
		}
	}
	if n != 4 {
		t.Errorf("%d entries", n)
	}
	var lines int
	for _, err := range d.Export(ctx, wire.ExportRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
		lines++
	}
	if lines < 5*4 {
		t.Errorf("the export has %d lines", lines)
	}
	if v, err := d.Verify(ctx, id); err != nil || !v.OK || v.Entries != 4 {
		t.Errorf("verify: %+v, %v", v, err)
	}
	if _, err := d.RollbackPlan(ctx, []tga.ID{id}); err != nil {
		t.Errorf("rollback plan: %v", err)
	}
	if _, err := d.RecoverAll(ctx); err != nil {
		t.Errorf("recover: %v", err)
	}
	text, err := d.Metrics(ctx)
	if err != nil || !bytes.Contains(text, []byte("\ntgad_entries_total ")) || bytes.Contains(text, []byte("tgad_disk_bytes")) {
		t.Errorf("metrics: %v\n%s", err, text)
	}
	if err := errors.Join(d.Live(ctx), d.Healthy(ctx), d.Ready(ctx)); err != nil {
		t.Error(err)
	}
}

// lacks asks for what a store in a database does not have: there is one answer.
func lacks(t *testing.T, d *daemon) {
	t.Helper()
	ctx := t.Context()
	wantCode(t, d.Backup(ctx, "/nowhere"), tga.NotFound)
	_, err := d.Seal(ctx, 0)
	wantCode(t, err, tga.NotFound)
	wantCode(t, d.Unfreeze(ctx, true), tga.ValidationError) // it is not frozen
	wantCode(t, d.EndQuarantine(ctx), tga.ValidationError)
	_, err = d.Proofs().Checkpoint(ctx)
	wantCode(t, err, tga.NotFound)
	if work, err := d.Working(ctx); err != nil || len(work) != 0 {
		t.Errorf("working: %v, %v", work, err)
	}
}

// TestPasswordIsKeptSecret: a password in a URL is refused, and no daemon says the one that it has.
func TestPasswordIsKeptSecret(t *testing.T) {
	t.Setenv("PGPASSWORD", "s3cret")
	f := newFleet(t, "", "")
	a := f.start("a")
	a.end(syscall.SIGTERM)
	if strings.Contains(a.log.String(), "s3cret") {
		t.Error("the log has the password")
	}
	for _, args := range [][]string{{"serve", "--store", "postgres://owner:s3cret@h/db"}, {"pg", "migrate", "postgres://owner:s3cret@h/db"}} {
		out, err := program(args...).CombinedOutput()
		if err == nil || bytes.Contains(out, []byte("s3cret")) || !bytes.Contains(out, []byte("password_file")) {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
	// A file that others can read is no place for a password.
	file := filepath.Join(f.dir, "password")
	text, err := os.ReadFile(f.config)
	if err == nil {
		err = os.WriteFile(f.config, bytes.Replace(text, []byte("[store]\n"), []byte("[store]\npassword_file = \""+file+"\"\n"), 1), 0o600)
	}
	if err == nil {
		err = os.WriteFile(file, []byte("s3cret\n"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := program("serve", "--store", f.url, "--config", f.config, "--socket", a.socket).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("password_file")) || bytes.Contains(out, []byte("s3cret")) {
		t.Errorf("%v, %s", err, out)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	f.start("b")
}

// TestOtherStoreIsRefused: a daemon whose configuration names a store takes no other.
func TestOtherStoreIsRefused(t *testing.T) {
	f := newFleet(t, "", "")
	text, err := os.ReadFile(f.config)
	if err == nil {
		err = os.WriteFile(f.config, bytes.Replace(text, []byte("[store]\n"), []byte("[store]\nid = \"01936a8b-4c2d-7000-8000-000000000001\"\n"), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := program("serve", "--store", f.url, "--config", f.config, "--socket", filepath.Join(f.dir, "s")).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("NOT_FOUND: open: the database has store")) {
		t.Errorf("%v, %s", err, out)
	}
}
