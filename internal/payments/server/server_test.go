//go:build unix

package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tgad/tgad/internal/payments/journal"
	"github.com/tgad/tgad/internal/payments/server"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/mcp"
	"github.com/tgad/tgad/schemas/tga"
)

const envServe = "PAYMENTS_TEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(envServe) != "" {
		os.Exit(server.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// start runs the server as a process of its own and connects to it as tgad does.
func start(t *testing.T, path string) *mcp.Server {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := mcp.New("payments", mcp.Options{
		Command: []string{exe, "--journal", path}, Env: []string{envServe + "=1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func dispatch(ctx context.Context, s *mcp.Server, tool, key, args string) (runtime.Reply, error) {
	id := tga.ID{6: 0x70, 8: 0x80, 15: 1}
	return s.Dispatch(ctx, runtime.Call{TraceID: id, ToolCallID: id, Attempt: 1, Tool: tool, Key: key, Args: []byte(args)})
}

// ask returns the structured answer, or "error: …".
func ask(t *testing.T, s *mcp.Server, tool, key, args string) string {
	t.Helper()
	r, err := dispatch(t.Context(), s, tool, key, args)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != tga.StatusSuccess {
		return "error: " + r.ErrorMessage
	}
	var m struct{ StructuredContent json.RawMessage }
	if err := json.Unmarshal(r.Result, &m); err != nil {
		t.Fatal(err)
	}
	return string(m.StructuredContent)
}

func report(t *testing.T, path string) journal.Report {
	t.Helper()
	var out, errs bytes.Buffer
	if code := server.Main([]string{"journal", path}, nil, &out, &errs); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	var r journal.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRepeatedKeyChargesOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	const args = `{"account":"alice","amount":9007199254740993,"memo":"rent"}`
	const want = `{"charge":1,"account":"alice","amount":9007199254740993}`
	s := start(t, path)
	for range 2 {
		if got := ask(t, s, "charge", "k1", args); got != want {
			t.Errorf("answer %s", got)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, path)
	if got := ask(t, s, "charge", "k1", args); got != want {
		t.Errorf("after a restart: %s", got)
	}
	if got := ask(t, s, "charge", "k1", `{"account":"alice","amount":1}`); !strings.Contains(got, "nothing was charged") {
		t.Errorf("other amount: %s", got)
	}
	if got := ask(t, s, "balance", "", `{"account":"alice"}`); got != `{"account":"alice","balance":9007199254740993}` {
		t.Errorf("balance %s", got)
	}
	want1 := journal.Count{Received: 4, Charges: 1, Repeated: 2}
	if r := report(t, path); r.Count != want1 || r.Double != 0 || len(r.Keys) != 1 || r.Keys[0].Count != want1 {
		t.Errorf("journal says %+v", r)
	}
}

func TestOpaqueToolChargesEveryTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	s := start(t, path)
	if got := ask(t, s, "lookup", "", `{"tool":"charge_opaque","key":"k"}`); got != `{"ran":false}` {
		t.Errorf("lookup before: %s", got)
	}
	for n := 1; n <= 2; n++ {
		want := fmt.Sprintf(`{"charge":%d,"account":"bob","amount":5}`, n)
		if got := ask(t, s, "charge_opaque", "k", `{"account":"bob","amount":5}`); got != want {
			t.Errorf("answer %s, want %s", got, want)
		}
	}
	if got := ask(t, s, "lookup", "", `{"tool":"charge_opaque","key":"k"}`); got != `{"ran":true,"receipt":{"charge":1,"account":"bob","amount":5}}` {
		t.Errorf("lookup after: %s", got)
	}
	if got := ask(t, s, "lookup", "", `{"tool":"charge","key":"k"}`); got != `{"ran":false}` {
		t.Errorf("lookup of the other tool: %s", got)
	}
	if r := report(t, path); r.Charges != 2 || r.Double != 1 {
		t.Errorf("journal says %+v", r)
	}
}

// The delay is between the charge and the answer: a kill there leaves a charge that nobody was told about.
func TestKillBetweenChargeAndAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := mcp.New("payments", mcp.Options{
		Command: []string{"/bin/sh", "-c", `echo $$ >"$1.pid"; exec "$0" --journal "$1"`, exe, path},
		Env:     []string{envServe + "=1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	done := make(chan error)
	go func() {
		_, err := dispatch(context.Background(), s, "charge", "k", `{"account":"a","amount":1,"delay_ms":60000}`)
		done <- err
	}()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if sum, err := journal.Read(path); err == nil && sum.Total().Charges == 1 {
			break
		}
		if time.Now().After(until) {
			t.Fatal("no charge")
		}
	}
	var pid int
	b, err := os.ReadFile(path + ".pid")
	if err == nil {
		_, err = fmt.Sscan(string(b), &pid)
	}
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil || errors.Is(err, runtime.ErrNotSent) {
		t.Errorf("error %v, want doubt", err)
	}
	if got := ask(t, s, "charge", "k", `{"account":"a","amount":1}`); got != `{"charge":1,"account":"a","amount":1}` {
		t.Errorf("again: %s", got)
	}
	if r := report(t, path); r.Charges != 1 || r.Received != 2 || r.Repeated != 1 {
		t.Errorf("journal says %+v", r)
	}
}

func TestTwoServersOneJournalOneCharge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	a, b := start(t, path), start(t, path)
	var wg sync.WaitGroup
	for i := range 40 {
		s := a
		if i%2 == 1 {
			s = b
		}
		wg.Go(func() {
			key := fmt.Sprint("k", i/4)
			if got := ask(t, s, "charge", key, `{"account":"a","amount":1}`); !strings.HasPrefix(got, `{"charge":`) {
				t.Errorf("%s: %s", key, got)
			}
		})
	}
	wg.Wait()
	if r := report(t, path); r.Received != 40 || r.Charges != 10 || r.Repeated != 30 || r.Double != 0 {
		t.Errorf("journal says %+v", r)
	}
}

func TestBadArgumentsChargeNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	s := start(t, path)
	for _, args := range []string{
		`{}`, `{"account":"a"}`, `{"account":"","amount":1}`, `{"account":"a","amount":0}`, `{"account":"a","amount":1.5}`,
		`{"account":"a","amount":9223372036854775808}`, `{"account":"a","amount":1,"delay_ms":60001}`, `{"account":"a","amount":1,"x":1}`,
	} {
		if got := ask(t, s, "charge", "k", args); !strings.Contains(got, "nothing was charged") {
			t.Errorf("%s: %s", args, got)
		}
	}
	if r := report(t, path); r.Received != 0 || r.Charges != 0 {
		t.Errorf("journal says %+v", r)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"journal"}, {"--nonsense"}, {"--journal", "x", "more"}} {
		var errs bytes.Buffer
		if code := server.Main(args, nil, nil, &errs); code != 2 || errs.Len() == 0 {
			t.Errorf("%q: exit %d, %q", args, code, errs.String())
		}
	}
	var errs bytes.Buffer
	if code := server.Main([]string{"journal", "/nonexistent/journal"}, nil, nil, &errs); code != 1 {
		t.Errorf("exit %d, %q", code, errs.String())
	}
}
