//go:build unix

package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/internal/testlog"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

var testID = tga.ID{0x01, 0x93, 0x6a, 0x8b, 0x4c, 0x2d, 0x70, 0, 0x80, 15: 1}

func testCall(tool, args string) runtime.Call {
	return runtime.Call{
		TraceID: testID, ToolCallID: testID, Attempt: 1, Server: "s", Tool: tool,
		Args: []byte(args), Key: `pay "7" ☃`,
	}
}

// scripted is a Server whose child is this test binary, with its witness file.
type scripted struct {
	*Server
	t       *testing.T
	witness string
	logged  *testlog.Buffer
}

func newScripted(t *testing.T, mode string, change func(*Options)) *scripted {
	t.Helper()
	s := &scripted{t: t, witness: filepath.Join(t.TempDir(), "witness"), logged: &testlog.Buffer{}}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{
		Command: []string{exe}, Env: []string{envMode + "=" + mode, envWitness + "=" + s.witness},
		Logger: slog.New(slog.NewTextHandler(s.logged, nil)),
	}
	if change != nil {
		change(&opts)
	}
	if s.Server, err = New("scripted", opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// seen returns the lines in the witness file that start with prefix.
func (s *scripted) seen(prefix string) []string {
	s.t.Helper()
	b, err := os.ReadFile(s.witness)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// await polls until the witness file has n lines that start with prefix.
func (s *scripted) await(prefix string, n int) {
	s.t.Helper()
	poll(s.t, func() bool { return len(s.seen(prefix)) >= n })
}

func poll(t *testing.T, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("did not happen")
		}
	}
}

// must dispatches a call that has to succeed and returns its structuredContent.
func (s *scripted) must(tool, args string) string {
	s.t.Helper()
	r, err := s.Dispatch(s.t.Context(), testCall(tool, args))
	if err != nil {
		s.t.Fatalf("%s: %v", tool, err)
	}
	if r.Status != tga.StatusSuccess {
		s.t.Fatalf("%s: %+v", tool, r)
	}
	return structured(s.t, r.Result)
}

func structured(t *testing.T, result []byte) string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(result, &m); err != nil {
		t.Fatalf("result %s: %v", result, err)
	}
	return string(m["structuredContent"])
}

func (s *scripted) wantNotSent(ctx context.Context, tool string) {
	s.t.Helper()
	if _, err := s.Dispatch(ctx, testCall(tool, "{}")); !errors.Is(err, runtime.ErrNotSent) {
		s.t.Fatalf("%s: error %v, want ErrNotSent", tool, err)
	}
}

func (s *scripted) wantDoubt(ctx context.Context, tool string) error {
	s.t.Helper()
	r, err := s.Dispatch(ctx, testCall(tool, "{}"))
	if err == nil || errors.Is(err, runtime.ErrNotSent) {
		s.t.Fatalf("%s: %+v, error %v, want doubt", tool, r, err)
	}
	return err
}

const numbers = `{"big":9007199254740993,"d":1.0,"e":1e400,"h":"<&>\u2028","n":-0.0,"z":123456789012345678901234567890}`

func TestNumbersSurvive(t *testing.T) {
	// The SDK's server escapes <&> in its output, so these bytes cannot be compared.
	for mode, numbers := range map[string]string{"script": numbers, "sdk": strings.Replace(numbers, "<&>", "", 1)} {
		t.Run(mode, func(t *testing.T) {
			s := newScripted(t, mode, nil)
			got := s.must("echo", numbers)
			if !strings.HasPrefix(got, `{"args":`+numbers+`,"meta":{`) {
				t.Errorf("came back as %s", got)
			}
			var echoed struct {
				Meta map[string]any `json:"meta"`
			}
			if err := json.Unmarshal([]byte(got), &echoed); err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]any{
				"dev.tgad/idempotencyKey": `pay "7" ☃`,
				"dev.tgad/traceId":        testID.String(),
				"dev.tgad/attempt":        1.0,
			} {
				if echoed.Meta[name] != want {
					t.Errorf("_meta %s is %v, want %v", name, echoed.Meta[name], want)
				}
			}
		})
	}
}

func TestProtocolVersions(t *testing.T) {
	for _, offered := range mcpraw.Revisions {
		s := newScripted(t, "sdk", func(o *Options) { o.ProtocolVersion = string(offered) })
		s.must("echo", "{}")
		if got := s.current.version; got != offered {
			t.Errorf("offered %s: agreed on %s", offered, got)
		}
	}
	s := newScripted(t, "script", nil) // does not know server/discover
	s.must("echo", "{}")
	if got := s.current.version; got != "2025-06-18" {
		t.Errorf("agreed on %s with a server of 2025-06-18", got)
	}
}

func TestFailures(t *testing.T) {
	s := newScripted(t, "script", nil)
	for _, c := range []struct {
		tool, args           string
		code, message, class string
	}{
		{"result", `{"raw":{"content":[{"type":"text","text":"no funds"}],"isError":true}}`, "TOOL_ERROR", "no funds", "none"},
		{"fault/-32601", "{}", "VALIDATION_ERROR", "JSON-RPC error -32601: said no", "permanent"},
		{"fault/-32602", "{}", "VALIDATION_ERROR", "JSON-RPC error -32602: said no", "permanent"},
		{"fault/-32603", "{}", "TOOL_ERROR", "JSON-RPC error -32603: said no", "none"},
	} {
		r, err := s.Dispatch(t.Context(), testCall(c.tool, c.args))
		if err != nil {
			t.Fatalf("%s: %v", c.tool, err)
		}
		class := map[bool]string{true: "none", false: "permanent"}[r.Class == 0]
		if r.Status != tga.StatusFailure || r.ErrorCode != c.code || r.ErrorMessage != c.message || class != c.class {
			t.Errorf("%s %s: %+v", c.tool, c.args, r)
		}
		if r.ResultDigest != tga.Sum(r.Result) || r.ResultBytes != int64(len(r.Result)) || r.ResultBytes == 0 {
			t.Errorf("%s: result %q of %d bytes", c.tool, r.Result, r.ResultBytes)
		}
	}
}

func TestDoubt(t *testing.T) {
	for _, tool := range []string{"die", "torn", "fault/-32000", "fault/-32001"} {
		s := newScripted(t, "script", nil)
		err := s.wantDoubt(t.Context(), tool)
		if calls := s.seen("call"); len(calls) != 1 {
			t.Errorf("%s reached the server as %q (%v)", tool, calls, err)
		}
		// The next call finds a server: a new one if the old one is dead.
		s.must("echo", "{}")
	}
}

func TestAnswerWithoutNewlineCounts(t *testing.T) {
	s := newScripted(t, "script", nil)
	if got := s.must("unended", "{}"); got != "1" {
		t.Errorf("answer %s", got)
	}
}

func TestDeathAfterTheAnswerChangesNothing(t *testing.T) {
	s := newScripted(t, "script", nil)
	first := s.must("pid", "{}")
	kill(t, first, syscall.SIGKILL)
	poll(t, func() bool { return !s.current.link.alive() })
	if second := s.must("pid", "{}"); second == first {
		t.Errorf("child %s answered after its death", first)
	}
	if n := len(s.seen("start")); n != 2 {
		t.Errorf("%d children, want 2", n)
	}
}

func kill(t *testing.T, pid string, sig syscall.Signal) {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil || n < 2 {
		t.Fatalf("pid %q: %v", pid, err)
	}
	if err := syscall.Kill(n, sig); err != nil {
		t.Fatal(err)
	}
}

func TestChildKilledInMidCallIsDoubt(t *testing.T) {
	s := newScripted(t, "script", nil)
	pid := s.must("pid", "{}")
	done := make(chan error)
	go func() {
		_, err := s.Dispatch(context.Background(), testCall("hang", "{}"))
		done <- err
	}()
	s.await("call hang", 1)
	kill(t, pid, syscall.SIGKILL)
	if err := <-done; err == nil || errors.Is(err, runtime.ErrNotSent) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("error %v, want doubt that names the signal", err)
	}
	if n := len(s.seen("call hang")); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

func TestNotSent(t *testing.T) {
	t.Run("no such program", func(t *testing.T) {
		s := newScripted(t, "script", func(o *Options) { o.Command = []string{"/nonexistent/server"} })
		s.wantNotSent(t.Context(), "echo")
	})
	t.Run("ends at once", func(t *testing.T) {
		s := newScripted(t, "exit", nil)
		s.wantNotSent(t.Context(), "echo")
	})
	t.Run("no handshake", func(t *testing.T) {
		s := newScripted(t, "mute", func(o *Options) { o.StartTimeout = 200 * time.Millisecond })
		s.wantNotSent(t.Context(), "echo")
	})
	t.Run("stdin closed", func(t *testing.T) {
		s := newScripted(t, "script", nil)
		s.must("unplug", "{}")
		s.wantNotSent(t.Context(), "echo")
		s.must("echo", "{}") // by a new child
		if calls := s.seen("call"); !slices.Equal(calls, []string{"call unplug", "call echo"}) {
			t.Errorf("servers saw %q", calls)
		}
	})
	t.Run("cancelled before", func(t *testing.T) {
		s := newScripted(t, "script", nil)
		s.must("echo", "{}")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.wantNotSent(ctx, "echo")
		if n := len(s.seen("call")); n != 1 {
			t.Errorf("%d calls arrived", n)
		}
	})
	t.Run("closed", func(t *testing.T) {
		s := newScripted(t, "script", nil)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s.wantNotSent(t.Context(), "echo")
	})
	t.Run("arguments that are no JSON", func(t *testing.T) {
		s := newScripted(t, "script", nil)
		if _, err := s.Dispatch(t.Context(), testCall("echo", `{"a":`)); !errors.Is(err, runtime.ErrNotSent) {
			t.Fatal(err)
		}
	})
}

func TestLinesThatAreNoMessagesAreIgnored(t *testing.T) {
	s := newScripted(t, "script", nil)
	if got := s.must("garbage", "{}"); got != "1" {
		t.Errorf("answer %s", got)
	}
	if got := s.must("twice", "{}"); got != "1" {
		t.Errorf("answer %s, want the first", got)
	}
	s.must("echo", "{}")
}

func TestAnswerLimit(t *testing.T) {
	const limit = 1 << 20
	s := newScripted(t, "script", func(o *Options) { o.MaxAnswerBytes = limit })
	r, err := s.Dispatch(t.Context(), testCall(fmt.Sprintf("bytes/%d", limit), "{}"))
	if err != nil || r.Truncated || len(r.Result) != limit || r.Status != tga.StatusSuccess {
		t.Fatalf("at the limit: %v, truncated %v, %d bytes", err, r.Truncated, len(r.Result))
	}
	whole := append(bytes.Clone(r.Result[:len(r.Result)-2]), `y"}`...)
	r, err = s.Dispatch(t.Context(), testCall(fmt.Sprintf("bytes/%d", limit+1), "{}"))
	if err != nil {
		t.Fatal(err)
	}
	if !r.Truncated || r.Result != nil || r.ResultBytes != limit+1 || r.ResultDigest != tga.Sum(whole) ||
		r.Status != tga.StatusError || r.ErrorCode != "LIMIT_EXCEEDED" {
		t.Errorf("past the limit: %+v", r)
	}
	s.must("echo", "{}")
	if n := len(s.seen("start")); n != 1 {
		t.Errorf("%d children", n)
	}
}

func TestCancellationIsToldAndIsDoubt(t *testing.T) {
	s := newScripted(t, "script", nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := s.Dispatch(ctx, testCall("hang", "{}"))
		done <- err
	}()
	s.await("call hang", 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, runtime.ErrNotSent) {
		t.Errorf("error %v", err)
	}
	if got := s.must("cancelled", "{}"); !strings.Contains(got, `{\"requestId\":`) {
		t.Errorf("server was told %s", got)
	}
}

func TestManyCallsShareOneChild(t *testing.T) {
	const n = 100
	s := newScripted(t, "script", nil)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			want := fmt.Sprintf(`{"i":%d}`, i)
			r, err := s.Dispatch(t.Context(), testCall(fmt.Sprintf("barrier/%d", n), want))
			if err != nil {
				t.Error(err)
				return
			}
			if got := structured(t, r.Result); got != want {
				t.Errorf("call %d got the answer of %s", i, got)
			}
		})
	}
	wg.Wait()
	if starts := len(s.seen("start")); starts != 1 {
		t.Errorf("%d children, want 1", starts)
	}
}

func TestServersRequestsAreAnswered(t *testing.T) {
	s := newScripted(t, "script", nil)
	got := s.must("ask", "{}")
	want := `[{"jsonrpc":"2.0","id":"p","result":{}},{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"tgad does not serve this method"}}]`
	if got != want {
		t.Errorf("server got %s", got)
	}
}

func TestChildSeesAMinimalEnvironment(t *testing.T) {
	t.Setenv("TGAD_TEST_SECRET", "x")
	s := newScripted(t, "script", nil)
	got := s.must("env", "{}")
	if strings.Contains(got, "TGAD_TEST_SECRET") || !strings.Contains(got, envMode) || !strings.Contains(got, "PATH=") {
		t.Errorf("environment %s", got)
	}
}

func TestStderrIsLogged(t *testing.T) {
	s := newScripted(t, "script", nil)
	s.must("echo", "{}")
	poll(t, func() bool { return strings.Contains(s.logged.String(), `line="scripted server is up"`) })
}

// The lock is held by a descendant of a dead child.
func TestNewChildWaitsForTheOld(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "lock")
	s := newScripted(t, "script", func(o *Options) { o.LockFile = lock })
	heir := s.must("leave", "{}")
	s.wantDoubt(t.Context(), "die")

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	s.wantNotSent(ctx, "echo")
	if n := len(s.seen("start")); n != 1 {
		t.Fatalf("%d children while the old one's descendant lives", n)
	}
	kill(t, heir, syscall.SIGKILL)
	s.must("echo", "{}")
}

func TestCloseEndsAChildThatIgnoresEOF(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "lock")
	s := newScripted(t, "script", func(o *Options) {
		o.LockFile = lock
		o.Env = append(o.Env, "TGAD_TEST_STUBBORN=1")
	})
	s.must("echo", "{}")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f, err := mcpraw.WaitLock(ctx, lock)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestListTools(t *testing.T) {
	s := newScripted(t, "sdk", nil)
	tools, err := s.ListTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(tools) != 3 || tools[0].Name != "echo" || !tools[0].ReadOnly || tools[0].Idempotent || tools[1].ReadOnly ||
		!json.Valid(tools[0].Definition) || !bytes.Contains(tools[0].Definition, []byte(`"inputSchema"`)) {
		t.Errorf("tools %+v", tools)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{}, {Command: []string{"x"}, URL: "http://x"}, {URL: "http://x", MaxAnswerBytes: -1}, {URL: "ftp://x"}, {URL: "//x"}, {URL: "http://"}, {URL: "::"}} {
		if _, err := New("s", o); !errors.Is(err, tga.ValidationError) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
