package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
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

	"github.com/tgad/tgad/internal/audit"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// hook is a receiver of webhooks that remembers the ids of the records that it took.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	ids    []string
	answer func(n int, w http.ResponseWriter, r *http.Request) // of the nth post; nil takes it
	posts  int
}

func newHook(t *testing.T) *hook {
	h := &hook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var records []struct{ ID string }
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // its sender was killed
		}
		if err := json.Unmarshal(body, &records); err != nil {
			t.Errorf("a post of %d bytes: %v", len(body), err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.posts++
		if h.answer != nil {
			h.answer(h.posts, w, r)
		}
		if w.Header().Get("Refused") == "" {
			for _, r := range records {
				h.ids = append(h.ids, r.ID)
			}
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) took() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ids)
}

// auditing is the part of a configuration that delivers to a hook and to a file.
func auditing(t *testing.T, url string) (conf, file string) {
	t.Helper()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), 0o600); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "audit")
	return fmt.Sprintf("\n[[audit]]\nid = \"hook\"\ntype = \"webhook\"\nurl = %q\nsecret_file = %q\n[[audit]]\nid = \"file\"\ntype = \"file\"\npath = %q\n", url, secret, file), file
}

// records are the ids of all records of the store, in order.
func (b *bench) records() (ids []string) {
	b.t.Helper()
	r := audit.NewReader(b.client.Trace)
	for line, err := range b.client.Log(b.t.Context(), "", false) {
		if err != nil {
			b.t.Fatal(err)
		}
		all, err := r.Records(b.t.Context(), line)
		if err != nil {
			b.t.Fatal(err)
		}
		for i := range all {
			ids = append(ids, all[i].ID)
		}
	}
	return ids
}

// inFile are the ids of the records in a file.
func inFile(t *testing.T, name string) (ids []string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r struct{ ID string }
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		ids = append(ids, r.ID)
	}
	return ids
}

// delivered waits until a delivery has no lag.
func (b *bench) delivered(id string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); b.scrape(`tgad_audit_lag{audit="`+id+`"}`) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%s lags", id)
		}
	}
}

// wantEach: each record is there, in the order of the log but for runs that came again.
func wantEach(t *testing.T, who string, got, want []string) {
	t.Helper()
	next, again := 0, 0
	for _, id := range got {
		switch at := slices.Index(want, id); {
		case at < 0:
			t.Errorf("%s has %s, which is no record", who, id)
		case at > next:
			t.Fatalf("%s has %s before %s", who, id, want[next])
		case at < next:
			next, again = at+1, again+1
		default:
			next++
		}
	}
	if next != len(want) {
		t.Errorf("%s has %d records, and then none of %q", who, len(got), want[next:])
	}
	t.Logf("%s: %d records, %d runs came again", who, len(got), again)
}

// TestKilledDaemonSkipsNothing: SIGKILL while the receiver has a batch and has not answered, and after it has
// answered. Afterwards the batch is repeated or the next one comes, and no record is missing.
func TestKilledDaemonSkipsNothing(t *testing.T) {
	h := newHook(t)
	conf, file := auditing(t, h.URL)
	b := setup(t, conf)
	calls := 0
	for round := range 4 {
		given, kill := make(chan struct{}), make(chan struct{})
		var once sync.Once
		h.mu.Lock()
		h.answer = func(_ int, w http.ResponseWriter, r *http.Request) {
			if round%2 == 1 {
				once.Do(func() { close(given) }) // it is answered, and the cursor may be kept or not
				return
			}
			once.Do(func() { close(given) })
			<-kill
			w.Header().Set("Refused", "its sender is dead")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		h.mu.Unlock()
		cmd := b.command(nil)
		for range 5 {
			calls++
			if _, err := b.client.Call(t.Context(), charge(fmt.Sprintf("k-%d", calls))); err != nil {
				t.Fatal(err)
			}
		}
		<-given
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed: it has no good exit
		close(kill)
		b.client.Close()
	}
	h.mu.Lock()
	h.answer = nil
	h.mu.Unlock()
	b.start()
	b.delivered("hook")
	b.delivered("file")
	want := b.records()
	if len(want) < 4*calls {
		t.Errorf("%d records of %d calls", len(want), calls)
	}
	wantEach(t, "the hook", h.took(), want)
	wantEach(t, "the file", inFile(t, file), want)
	if b.scrape(`tgad_audit_records_total{audit="hook"}`) == 0 {
		t.Error("no record is counted")
	}
}

// TestReceiverThatIsDownHoldsNothingUp: while a receiver hangs and while it refuses, calls succeed, the lag and
// the failures are counted, and the other receiver gets everything. When the receiver works again, it gets each
// record. A daemon that stops delivers the records that are left.
func TestReceiverThatIsDownHoldsNothingUp(t *testing.T) {
	h := newHook(t)
	hang := make(chan struct{})
	h.answer = func(n int, w http.ResponseWriter, r *http.Request) {
		switch n {
		case 1:
			<-hang
			fallthrough
		case 2:
			w.Header().Set("Refused", "now")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	conf, file := auditing(t, h.URL)
	b := start(t, conf)
	for i := range 20 {
		if _, err := b.client.Call(t.Context(), charge(fmt.Sprintf("k-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	b.delivered("file")
	if lag := b.scrape(`tgad_audit_lag{audit="hook"}`); lag < 20 {
		t.Errorf("the hook hangs, and the lag is %v", lag)
	}
	close(hang)
	b.delivered("hook")
	if failures := b.scrape(`tgad_audit_failures_total{audit="hook"}`); failures != 2 {
		t.Errorf("%v failures", failures)
	}
	if _, err := b.client.Call(context.Background(), charge("last")); err != nil {
		t.Fatal(err)
	}
	want := b.records()
	b.stop()
	wantEach(t, "the hook", h.took(), want)
	wantEach(t, "the file", inFile(t, file), want)
	if first := h.took(); len(first) != len(want) {
		t.Errorf("the hook took %d records of %d: one twice, without need", len(first), len(want))
	}
}

// TestAuditStaysOutOfTheStore: a file in the directory of the store is refused, and so is a key that is none.
func TestAuditStaysOutOfTheStore(t *testing.T) {
	h := newHook(t)
	conf, file := auditing(t, h.URL)
	for what, change := range map[string][2]string{
		"lies in the store": {file, filepath.Join("DATA", "audit-file")},
		"want lines of":     {"secret_file = ", "secret_file = \"/dev/null\"\n#"},
	} {
		b := setup(t, "")
		b.config += strings.ReplaceAll(strings.Replace(conf, change[0], change[1], 1), "DATA", b.data)
		if what == "want lines of" {
			bad := filepath.Join(b.dir, "bad")
			if err := os.WriteFile(bad, []byte("s3cret"), 0o600); err != nil {
				t.Fatal(err)
			}
			b.config = strings.Replace(b.config, "/dev/null", bad, 1)
		}
		o := b.options()
		if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("want %q: %v", what, err)
		}
	}
}

// TestDeliveredRecordsAreThoseOfTheLog: delivered records are made from memory and not from lines of the log. They are the
// same, field by field, also for calls that are served, in doubt, resolved or erased.
func TestDeliveredRecordsAreThoseOfTheLog(t *testing.T) {
	b := start(t, "")
	ctx := t.Context()
	paid, err := b.client.Call(ctx, charge("order-1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Call(ctx, charge("order-1")); err != nil { // served
		t.Fatal(err)
	}
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) { panic(http.ErrAbortHandler) })
	doubt, err := b.client.Call(ctx, charge("order-2"))
	wantCode(t, err, tga.EffectInDoubt)
	if _, err := b.client.Resolve(ctx, doubt.TraceID, runtime.Resolution{Reply: runtime.Reply{Status: tga.StatusFailure, ErrorMessage: "it did not run"}, Evidence: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Erase(ctx, wire.EraseRequest{Traces: []tga.ID{paid.TraceID}, Reason: "the customer asked for it"}); err != nil {
		t.Fatal(err)
	}
	b.stop()
	conf, file := auditing(t, "http://127.0.0.1:1/")
	b.config += conf
	b.start()
	b.delivered("file")
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	r := audit.NewReader(b.client.Trace)
	for line, err := range b.client.Log(ctx, "", false) {
		if err != nil {
			t.Fatal(err)
		}
		all, err := r.Records(ctx, line)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if err := audit.Write(&want, "cloudevents", "test", &all[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if string(got) != want.String() || bytes.Count(got, []byte("\n")) < 15 {
		t.Errorf("delivered:\n%s\nin the log:\n%s", got, want.Bytes())
	}
}
