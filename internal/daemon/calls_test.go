package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

func TestCallOverTheSocket(t *testing.T) {
	b := start(t, "")
	res, err := b.client.Call(t.Context(), charge("order-1"))
	if err != nil {
		t.Fatal(err)
	}
	if res.State != tga.Completed || string(res.Value) != `{"paid":9007199254740993,"text":"a<b>&"}` {
		t.Errorf("result %+v %s", res, res.Value)
	}
	again, err := b.client.Call(t.Context(), charge("order-1"))
	if err != nil {
		t.Fatal(err)
	}
	if again.ServedFrom != res.TraceID || string(again.Value) != string(res.Value) || b.tool.sends("order-1") != 1 {
		t.Errorf("again %+v, %d sends", again, b.tool.sends("order-1"))
	}
}

// TestDocumentsAreExact: whatever a tool answers, the answer's own bytes come back, in
// the result and as the document.
func TestDocumentsAreExact(t *testing.T) {
	b := start(t, "")
	for i, answer := range []string{
		`{"b":1,"a":[1.0,1e2,9007199254740993],"b":2}`, "{\n  \"a\": \"<&>\u2028\"\n}", " 1 \n", "plain text", "\xff\xfe", `"\ud800"`, "null", "[]",
	} {
		b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) { io.WriteString(w, answer) })
		res, err := b.client.Call(t.Context(), charge(fmt.Sprint("order-", i)))
		if err != nil {
			t.Fatal(err)
		}
		if string(res.Value) != answer {
			t.Errorf("result %q, want %q", res.Value, answer)
		}
		raw, digest, err := b.client.Document(t.Context(), res.TraceID, tga.PointerResult)
		if err != nil {
			t.Fatal(err)
		}
		if string(raw) != answer || digest != tga.Sum([]byte(answer)) {
			t.Errorf("document %q, want %q", raw, answer)
		}
		path := "/v1/traces/" + res.TraceID.String() + "/documents?pointer=/result"
		if status, _, body := b.raw("GET", path, "", "If-None-Match", `"`+digest.String()+`"`); status != http.StatusNotModified || len(body) != 0 {
			t.Errorf("with its ETag: %d %q", status, body)
		}
	}
}

// TestRacersWithOneKey: the tool sees one request, and every racer gets its answer.
func TestRacersWithOneKey(t *testing.T) {
	b := start(t, "")
	const racers = 1000
	release := make(chan struct{})
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		<-release
		io.WriteString(w, `{"charge":"ch_1"}`)
	})
	// The tool answers once every racer is at work.
	go func() {
		for b.scrape("tgad_calls_in_flight") < racers {
			time.Sleep(5 * time.Millisecond)
		}
		close(release)
	}()
	results := make([]runtime.Result, racers)
	errs := make([]error, racers)
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() { results[i], errs[i] = b.client.Call(context.Background(), charge("order-1")) })
	}
	wg.Wait()
	sent, served := 0, 0
	for i := range racers {
		if errs[i] != nil || string(results[i].Value) != `{"charge":"ch_1"}` {
			t.Fatalf("racer %d: %+v %v", i, results[i], errs[i])
		}
		if results[i].ServedFrom.IsZero() {
			sent++
		} else {
			served++
		}
	}
	if b.tool.sends("order-1") != 1 || sent != 1 || served != racers-1 {
		t.Errorf("%d sends; %d racers sent and %d were served", b.tool.sends("order-1"), sent, served)
	}
	b.client.Close()
}

// TestRacersWithOtherArguments: a key that belongs to another request is refused a
// thousand times, and nothing is written.
func TestRacersWithOtherArguments(t *testing.T) {
	b := start(t, "")
	if _, err := b.client.Call(t.Context(), charge("order-1")); err != nil {
		t.Fatal(err)
	}
	before := b.everything()
	var wg sync.WaitGroup
	errs := make([]error, 1000)
	for i := range errs {
		wg.Go(func() {
			req := charge("order-1")
			req.Args = fmt.Appendf(nil, `{"amount":%d}`, 6+i)
			_, errs[i] = b.client.Call(context.Background(), req)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if !errors.Is(err, tga.IdempotencyKeyConflict) {
			t.Fatalf("error %v", err)
		}
	}
	if after := b.everything(); after != before || b.tool.sends("order-1") != 1 {
		t.Errorf("%d sends; the store changed:\n%s\n%s", b.tool.sends("order-1"), before, after)
	}
}

// TestWhoShutsDownItsSideIsGone: a client that ends its sending side after the request, as nc -N does, gets no answer,
// and the call goes on.
func TestWhoShutsDownItsSideIsGone(t *testing.T) {
	b := start(t, "")
	arrived, release := make(chan struct{}), make(chan struct{})
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		close(arrived)
		<-release
		io.WriteString(w, `"done"`)
	})
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: b.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const body = `{"tool_server":"pay","tool_name":"charge","args":{"amount":5},"idempotency_key":"order-1"}`
	if _, err := fmt.Fprintf(c, "POST /v1/tool-calls HTTP/1.1\r\nHost: tgad\r\nTgad-Client: test\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	<-arrived
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
	close(release)
	res, err := b.client.Call(t.Context(), charge("order-1"))
	if err != nil || string(res.Value) != `"done"` || b.tool.sends("order-1") != 1 {
		t.Errorf("asked again: %+v %v, %d sends", res, err, b.tool.sends("order-1"))
	}
}

// TestDisconnectDoesNotStopACall: the caller disconnects while the tool works. The effect is recorded,
// and a repeat of the call is served.
func TestDisconnectDoesNotStopACall(t *testing.T) {
	b := start(t, "")
	arrived, release := make(chan struct{}), make(chan struct{})
	b.tool.respond(func(w http.ResponseWriter, r *http.Request, _ []byte) {
		close(arrived)
		select {
		case <-release:
		case <-r.Context().Done():
			t.Error("the daemon hung up on the tool")
		}
		io.WriteString(w, `"done"`)
	})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	req := charge("order-1")
	req.TraceID = newID()
	go func() {
		_, err := b.client.Call(ctx, req)
		gone <- err
	}()
	<-arrived
	cancel()
	wantCode(t, <-gone, tga.StoreUnavailable)
	// The daemon has seen the client go before the tool answers.
	for b.scrape(`tgad_http_requests_total{method="POST",route="/v1/tool-calls",status="499"}`) != 1 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	var state string
	for e, err := range b.client.Entries(t.Context(), req.TraceID, 0, true) {
		if err != nil {
			t.Fatal(err)
		}
		state = string(e.Entry)
	}
	if !strings.Contains(state, `"to_state":"COMPLETED"`) {
		t.Errorf("the last entry is %s", state)
	}
	// The call gives its lease back after its last entry can be seen.
	res, err := b.client.Call(t.Context(), req)
	for errors.Is(err, tga.StateLockAcquireFailed) && t.Context().Err() == nil {
		res, err = b.client.Call(t.Context(), req)
	}
	if err != nil || string(res.Value) != `"done"` || !res.Replayed || b.tool.sends("order-1") != 1 {
		t.Errorf("again: %+v %v, %d sends", res, err, b.tool.sends("order-1"))
	}
}

// TestDeadlineIsTheRequests: the log does not have how long a caller waits. It has the deadline that the
// request names, and after that deadline the call is not sent.
func TestDeadlineIsTheRequests(t *testing.T) {
	b := start(t, "[[rule]]\ndecision = \"NEEDS_APPROVAL\"\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	res, err := b.client.Call(ctx, charge("order-1"))
	wantCode(t, err, tga.EscalationRequired)
	timeline, err := b.client.Trace(t.Context(), res.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	if timeline.Deadline != 0 {
		t.Errorf("the deadline is %v", timeline.Deadline)
	}
	timely := charge("order-3")
	timely.Deadline = time.Now().Add(time.Hour)
	res, err = b.client.Call(t.Context(), timely)
	wantCode(t, err, tga.EscalationRequired)
	if timeline, err = b.client.Trace(t.Context(), res.TraceID); err != nil || timeline.Deadline != tga.MillisOf(timely.Deadline) {
		t.Errorf("the deadline is %v (%v)", timeline.Deadline, err)
	}
	late := charge("order-2")
	late.Deadline = time.Now().Add(-time.Second)
	_, err = b.client.Call(t.Context(), late)
	wantCode(t, err, tga.ToolTimeout)
	if n := b.tool.sends("order-2"); n != 0 {
		t.Errorf("%d sends after the deadline", n)
	}
}

// command starts a daemon in a process of its own and waits until it takes calls.
// files are handed to it from descriptor 3 on.
func (b *bench) command(files []*os.File, env ...string) *exec.Cmd {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	path := filepath.Join(b.dir, "tgad.toml")
	if err := os.WriteFile(path, []byte(b.config), 0o600); err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), append(env, childEnv+"=daemon", "CONFIG="+path, "DATA="+b.data, "SOCKET="+b.socket)...)
	cmd.Stderr = testWriter{b.t}
	if cmd.ExtraFiles = files; len(files) > 0 {
		cmd.Env = append(cmd.Env, "LISTEN_FDS=1", "LISTEN_PID=self")
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		b.t.Fatalf("the daemon says %q %v", line, err)
	}
	b.client = client.New(b.socket, client.Options{Name: "test"})
	b.t.Cleanup(func() { closes(b.t, b.client) })
	return cmd
}

// TestSIGTERMDrains: a call under way finishes and is answered, a new one is refused, the process exits
// with 0, and its socket is gone.
func TestSIGTERMDrains(t *testing.T) {
	b := setup(t, "")
	arrived, release := make(chan struct{}), make(chan struct{})
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		close(arrived)
		<-release
		io.WriteString(w, `"done"`)
	})
	cmd := b.command(nil)
	type outcome struct {
		res runtime.Result
		err error
	}
	answered := make(chan outcome, 1)
	go func() {
		res, err := b.client.Call(context.Background(), charge("order-1"))
		answered <- outcome{res, err}
	}()
	<-arrived
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// The listener closes first: a new call finds nobody.
	for {
		if err := b.client.Healthy(t.Context()); err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	_, err := b.client.Call(t.Context(), charge("order-2"))
	wantCode(t, err, tga.StoreUnavailable)
	close(release)
	if o := <-answered; o.err != nil || string(o.res.Value) != `"done"` {
		t.Errorf("the call under way: %+v %v", o.res, o.err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
	if _, err := os.Lstat(b.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is there: %v", err)
	}
	if b.tool.sends("order-2") != 0 {
		t.Error("a call was sent while draining")
	}
	b.start()
	res, err := b.client.Call(t.Context(), charge("order-1"))
	if err != nil || res.ServedFrom.IsZero() || b.tool.sends("order-1") != 1 {
		t.Errorf("after the restart: %+v %v, %d sends", res, err, b.tool.sends("order-1"))
	}
}

// TestKilledDaemonLeavesDoubt: SIGKILL while the tool has the call. The next daemon is
// ready with the call in doubt and sends nothing; a licensed one is sent again.
func TestKilledDaemonLeavesDoubt(t *testing.T) {
	b := setup(t, "")
	arrived := make(chan struct{}, 4)
	hold := make(chan struct{})
	b.tool.respond(func(w http.ResponseWriter, r *http.Request, _ []byte) {
		arrived <- struct{}{}
		select {
		case <-hold:
		case <-r.Context().Done():
		}
		io.WriteString(w, `"done"`)
	})
	cmd := b.command(nil)
	for _, name := range []string{"charge", "charge_opaque"} {
		go func() {
			req := charge("order-" + name)
			req.Tool = name
			_, err := b.client.Call(context.Background(), req)
			if err == nil {
				t.Error("a killed daemon answered")
			}
		}()
		<-arrived
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed: it has no good exit
	close(hold)
	b.start()
	res, err := b.client.Call(t.Context(), charge("order-charge"))
	if err != nil || string(res.Value) != `"done"` {
		t.Errorf("the licensed call: %+v %v", res, err)
	}
	doubt, err := b.client.InDoubt(t.Context())
	// A daemon that starts looks at each open call itself; one that is being looked at is not in the list.
	for until := time.Now().Add(20 * time.Second); err == nil && len(doubt) == 0 && time.Now().Before(until); time.Sleep(time.Millisecond) {
		doubt, err = b.client.InDoubt(t.Context())
	}
	if err != nil || len(doubt) != 1 || doubt[0].ToolName != "charge_opaque" {
		t.Errorf("in doubt: %+v %v", doubt, err)
	}
	if b.tool.sends("order-charge") != 2 || b.tool.sends("order-charge_opaque") != 1 {
		t.Errorf("sends: %d and %d, want 2 under the licence and 1 without", b.tool.sends("order-charge"), b.tool.sends("order-charge_opaque"))
	}
}
