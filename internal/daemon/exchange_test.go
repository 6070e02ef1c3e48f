package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// exchange is one request with its answer, as they were on the wire.
type exchange struct {
	method, path  string
	request, body []byte
	status        int
	kind          string
}

// recorder stands between a client and the daemon and keeps what passes.
type recorder struct {
	mu   sync.Mutex
	seen []exchange
}

func record(t *testing.T, b *bench) (*recorder, *client.Client) {
	t.Helper()
	rec := &recorder{}
	upstream := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", b.socket) }}
	socket := filepath.Join(b.dir, "proxy.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		out := r.Clone(r.Context())
		out.RequestURI, out.URL.Scheme, out.URL.Host = "", "http", "tgad"
		out.Body = io.NopCloser(bytes.NewReader(body))
		resp, err := upstream.RoundTrip(out)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
		rec.mu.Lock()
		rec.seen = append(rec.seen, exchange{r.Method, r.URL.Path, body, answer, resp.StatusCode, kind})
		rec.mu.Unlock()
		for name, values := range resp.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(resp.StatusCode)
		if _, err := w.Write(answer); err != nil {
			t.Error(err)
		}
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // ends with Close
	}()
	c := client.New(socket, client.Options{Name: "recorded"})
	t.Cleanup(func() {
		c.Close()
		upstream.CloseIdleConnections()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return rec, c
}

// get asks for a path through the recorder.
func (rec *recorder) get(b *bench, path string) error {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", filepath.Join(b.dir, "proxy.sock"))
	}}}
	resp, err := c.Get("http://" + wire.Host + path)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// routeOf finds the row of the table that a path belongs to.
func routeOf(method, path string) *route {
	for i := range routes {
		r := &routes[i]
		want, got := strings.Split(r.path, "/"), strings.Split(path, "/")
		if strings.HasSuffix(r.path, "...}") { // it takes the rest
			got = strings.SplitN(path, "/", len(want))
		}
		if r.method != method || len(want) != len(got) {
			continue
		}
		same := true
		for j := range want {
			same = same && (want[j] == got[j] || strings.HasPrefix(want[j], "{"))
		}
		if same {
			return r
		}
	}
	return nil
}

// TestMessagesMatchTheDocument makes requests to every route and holds what was on the
// wire, both ways, to the schemas of the document.
func TestMessagesMatchTheDocument(t *testing.T) {
	s := newShop(t)
	evidence, _, _ := signs(t)
	b := start(t, evidence+`
[retention]
every = "8760h"
archive = "`+filepath.Join(t.TempDir(), "archive")+`"
[[retention.rule]]
server = "nobody's"
erase_after = "1h"
[[notify]]
id = "nobody"
type = "command"
command = ["/nonexistent"]
after = "1ms"
[[rule]]
tool = "ask_people"
decision = "NEEDS_APPROVAL"
rationale = "people decide about this"
within = "1h"
[[rule]]
decision = "APPROVE"
`+s.config(`replay = "human"`))
	rec, c := record(t, b)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(err error, code tga.Code) {
		t.Helper()
		wantCode(t, err, code)
	}

	// Calls: completed, served, conflict, failed, in doubt, waiting for people.
	res, err := c.Call(ctx, runtime.Request{
		Server: "pay", Tool: "charge", Key: "k1", Args: []byte(`{"amount":5}`), Intent: "charge a customer once",
		Resources: []tga.Resource{{Kind: "service", ID: "pay"}}, Meta: tga.Meta{"n": tga.Number("7"), "s": "x", "b": true, "z": nil},
		Deadline: time.Now().Add(time.Hour),
	})
	must(err)
	_, err = c.Call(ctx, charge("k1"))
	must(err)
	_, err = c.Call(ctx, runtime.Request{Server: "pay", Tool: "charge", Key: "k1", Args: []byte(`{"amount":6}`)})
	refused(err, tga.IdempotencyKeyConflict)
	_, err = c.Call(ctx, runtime.Request{Server: "pay", Tool: "charge"})
	refused(err, tga.IdempotencyKeyRequired)
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) { w.WriteHeader(http.StatusInternalServerError) })
	doubtful := func(key string) tga.ID {
		t.Helper()
		res, err := c.Call(ctx, runtime.Request{Server: "pay", Tool: "charge_opaque", Key: key})
		refused(err, tga.EffectInDoubt)
		return res.TraceID
	}
	first, second := doubtful("d1"), doubtful("d2")
	doubt, err := c.InDoubt(ctx)
	must(err)
	if len(doubt) != 2 || doubt[0].Window != "W4" || doubt[0].Attempts != 1 {
		t.Errorf("in doubt: %+v", doubt)
	}
	_, err = c.RecoverAll(ctx)
	must(err)
	_, err = c.Recover(ctx, res.TraceID)
	must(err)
	resolved, err := c.Resolve(ctx, first, runtime.Resolution{Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"seen":"in the journal"}`)}, Evidence: []byte("line 7")})
	must(err)
	if resolved.State != tga.Completed {
		t.Errorf("resolved: %+v", resolved)
	}
	_, err = c.Abandon(ctx, second, "nobody knows it")
	must(err)
	_, err = c.Abandon(ctx, second, "nobody knows it")
	refused(err, tga.StateInvalidTransition)
	third := doubtful("d3")
	b.tool.respond(nil)
	b.mustReload("tool.licence", "name = \"charge_opaque\"\n", "name = \"charge_opaque\"\nlicence = \"dedupe_args\"\n")
	for _, dry := range []bool{true, false} {
		_, err = c.Relicense(ctx, third, wire.RelicenseRequest{Reason: "the provider says so", DryRun: dry})
		must(err)
	}
	_, err = c.Relicense(ctx, third, wire.RelicenseRequest{Reason: "again"})
	refused(err, tga.StateInvalidTransition)
	waiting, err := c.Call(ctx, runtime.Request{Server: "pay", Tool: "ask_people", Key: "p1"})
	refused(err, tga.EscalationRequired)
	list, err := c.Approvals(ctx)
	must(err)
	if len(list) != 1 || list[0].TraceID != waiting.TraceID {
		t.Fatalf("approvals: %+v", list)
	}
	_, err = c.Trace(ctx, waiting.TraceID)
	must(err)
	for o, err := range c.Traces(ctx, wire.TracesQuery{State: "PENDING"}) {
		must(err)
		if o.TraceID != waiting.TraceID || o.ToolName != "ask_people" {
			t.Errorf("open: %+v", o)
		}
	}
	decided, err := c.Decide(ctx, waiting.TraceID, wire.DecideRequest{Approve: true, Rationale: "the customer was asked"})
	must(err)
	if decided.State != tga.Completed {
		t.Errorf("decided: %+v", decided)
	}

	// Begin and finish.
	begin := runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: "charge", Key: "b1"}, BeginID: "begin-1"}
	begun, err := c.Begin(ctx, begin)
	must(err)
	if begun.Standing != runtime.BeginSend {
		t.Fatalf("begun: %+v", begun)
	}
	_, err = c.NotSent(ctx, begun.Result.TraceID, begun.Permit, "the network is down", 0)
	must(err)
	begin.BeginID = "begin-2"
	if begun, err = c.Begin(ctx, begin); err != nil || begun.Standing != runtime.BeginSend {
		t.Fatalf("begun again: %+v %v", begun, err)
	}
	other := begin
	other.BeginID = "begin-3"
	if wait, err := c.Begin(ctx, other); err != nil || wait.Standing != runtime.BeginWait || wait.Cause == nil {
		t.Errorf("another begin: %+v %v", wait, err)
	}
	finished := runtime.Finished{Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(" spaced \n")}}
	done, err := c.Finish(ctx, begun.Result.TraceID, begun.Permit, finished)
	must(err)
	if again, err := c.Finish(ctx, begun.Result.TraceID, begun.Permit, finished); err != nil || !again.Replayed || string(again.Value) != " spaced \n" {
		t.Errorf("finish again: %+v %v", again, err)
	}
	finished.Status = tga.StatusFailure
	_, err = c.Finish(ctx, begun.Result.TraceID, begun.Permit, finished)
	refused(err, tga.StateInvalidTransition)

	trustExchange(t, c, s)

	// The log itself.
	raw := mintChain(t, "raw-1", nil)
	lease, err := c.Lease(ctx, raw.trace, time.Minute)
	must(err)
	lease, err = c.Renew(ctx, lease, 2*time.Minute)
	must(err)
	_, err = c.Append(ctx, raw.trace, appending(lease.Lease, raw.request))
	must(err)
	answers, err := c.AppendBatch(ctx, []wire.BatchItem{
		{TraceID: raw.trace, AppendRequest: raw.begin(lease.Lease)},
		{TraceID: raw.trace, AppendRequest: appending(lease.Lease, raw.decision, raw.call)},
		{TraceID: raw.trace, AppendRequest: raw.end(lease.Lease)},
	})
	must(err)
	if len(answers) != 3 || answers[0].Problem == nil || answers[1].Appended == nil || answers[2].Appended == nil {
		t.Errorf("batch: %+v", answers)
	}
	_, err = c.Checkpoint(ctx, raw.trace, lease)
	must(err)
	_, err = c.Release(ctx, lease)
	must(err)
	_, err = c.LatestCheckpoint(ctx, raw.trace)
	must(err)

	// Reading.
	_, err = c.State(ctx, raw.trace)
	must(err)
	timeline, err := c.Trace(ctx, done.TraceID)
	must(err)
	if len(timeline.Notes) != 1 || len(timeline.Entries) != 4 { // the attempt that was taken back is another trace's
		t.Errorf("timeline with %d notes and %d entries", len(timeline.Notes), len(timeline.Entries))
	}
	for _, err := range c.Entries(ctx, raw.trace, 0, false) {
		must(err)
	}
	for _, err := range c.Export(ctx, wire.ExportRequest{Dialect: wire.DialectTgad}) {
		must(err)
	}
	for _, err := range c.Log(ctx, "", false) {
		must(err)
	}
	_, _, err = c.Document(ctx, res.TraceID, tga.PointerResult)
	must(err)
	_, err = c.State(ctx, newID())
	refused(err, tga.NotFound)
	for _, trace := range []tga.ID{res.TraceID, {}} {
		v, err := c.Verify(ctx, trace)
		must(err)
		if !v.OK {
			t.Errorf("verify: %+v", v)
		}
	}
	for _, err := range c.Attachments(ctx, chain.AttachBlob, nil) {
		must(err)
	}
	if working, err := c.Working(ctx); err != nil || len(working) > 0 {
		t.Errorf("nothing is under way: %+v, %v", working, err)
	}
	for o, err := range c.Traces(ctx, wire.TracesQuery{All: true}) {
		must(err)
		b.receipt(o.TraceID)
		_, err = c.Proofs().Receipt(ctx, o.TraceID)
		must(err)
		for _, err := range c.Proofs().Export(ctx, wire.EvidenceRequest{TraceIDs: []tga.ID{o.TraceID}}) {
			must(err)
		}
		break
	}
	_, err = c.Proofs().Checkpoint(ctx)
	must(err)
	for _, path := range []string{"checkpoint", "tile/0/000.p/1"} {
		_, err = c.Proofs().Tile(ctx, path)
		must(err)
	}
	must(c.Backup(ctx, filepath.Join(b.dir, "backup")))
	sealed, err := c.Seal(ctx, 0)
	must(err)
	if sealed.Segments != 1 {
		t.Errorf("sealed: %+v", sealed)
	}
	if erased, err := c.Erase(ctx, wire.EraseRequest{Subject: "nobody", Reason: "to see the answer"}); err != nil || !reflect.DeepEqual(erased, wire.Erased{}) {
		t.Errorf("erased: %+v, %v", erased, err)
	}
	_, err = c.Erase(ctx, wire.EraseRequest{Reason: "nothing is named"})
	refused(err, tga.ValidationError)
	_, err = client.Retain(ctx, c, wire.RetentionRequest{DryRun: true})
	must(err)
	refused(c.Unfreeze(ctx, true), tga.ValidationError)
	refused(c.EndQuarantine(ctx), tga.ValidationError)
	_, err = client.Reload(ctx, c)
	must(err)
	_, err = client.Notify(ctx, c, true)
	must(err)
	must(c.Live(ctx))
	must(c.Healthy(ctx))
	must(c.Ready(ctx))
	_, err = c.Metrics(ctx)
	must(err)
	_, err = client.OpenAPI(ctx, c)
	must(err)
	must(rec.get(b, "/debug/pprof/heap")) // which the client has no verb for

	d := openDocument(t)
	answered := map[string]bool{}
	for _, x := range rec.seen {
		r := routeOf(x.method, x.path)
		if r == nil {
			t.Fatalf("%s %s is no route", x.method, x.path)
		}
		op := []string{"paths", documented(r.path), strings.ToLower(x.method)}
		d.checkRequest(x, op)
		d.checkAnswer(x, op)
		if x.status < 300 {
			answered[r.method+" "+r.path] = true
		}
	}
	for _, r := range routes {
		// These two answer well only on a store that is frozen, or was.
		if name := r.method + " " + r.path; !answered[name] && !strings.HasSuffix(name, "unfreeze") && !strings.HasSuffix(name, "end-quarantine") {
			t.Errorf("%s was never answered well", name)
		}
	}
}

func (d *document) checkRequest(x exchange, op []string) {
	d.t.Helper()
	if len(x.request) == 0 {
		return
	}
	place, ok := d.place(append(op, "requestBody", "content", "application/json", "schema"))
	if !ok {
		d.t.Errorf("%s %s has a body, and the document none", x.method, x.path)
		return
	}
	if err := d.validate(x.request, place...); err != nil {
		d.t.Errorf("%s %s: request %s: %v", x.method, x.path, x.request, err)
	}
}

func (d *document) checkAnswer(x exchange, op []string) {
	d.t.Helper()
	status := "default"
	if x.status == http.StatusOK {
		status = "200"
	}
	content, ok := d.find(append(op, "responses", status, "content", x.kind)...)
	if !ok {
		d.t.Errorf("%s %s: %d %s is not in the document", x.method, x.path, x.status, x.kind)
		return
	}
	if content["schema"] == nil {
		return
	}
	place, _ := d.place(append(op, "responses", status, "content", x.kind, "schema"))
	lines := [][]byte{x.body}
	if x.kind == wire.NDJSONType {
		lines = bytes.Split(bytes.TrimSuffix(x.body, []byte("\n")), []byte("\n"))
	}
	for _, line := range lines {
		if err := d.validate(line, place...); err != nil {
			d.t.Errorf("%s %s: answer %s: %v", x.method, x.path, line, err)
		}
	}
}

// place resolves the references on the way to a schema: the place that it really is at.
func (d *document) place(path []string) ([]string, bool) {
	v, at := d.root, []string{}
	for _, p := range path {
		next, ok := v[p].(map[string]any)
		if !ok {
			return nil, false
		}
		at = append(at[:len(at):len(at)], p)
		if ref, ok := next["$ref"].(string); ok && len(next) == 1 {
			at = strings.Split(strings.TrimPrefix(ref, "#/"), "/")
			next = d.at(at...)
		}
		v = next
	}
	return at, true
}
