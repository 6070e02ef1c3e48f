package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/wire"
)

// standIn is a socket that acts as the daemon in one tool call: it reads the request with the types of
// package wire and answers by the key.
type standIn struct{ t *testing.T }

const args = `{"account":"a","amount":9007199254740993}`

func (s standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	var req wire.CallRequest
	if err := json.Unmarshal(body, &req); err != nil {
		s.t.Errorf("body %s: %v", body, err)
	}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/tool-calls" || r.Host != wire.Host ||
		r.Header.Get(wire.HeaderClient) == "" || r.Header.Get(wire.HeaderTimeout) != "30s" ||
		r.Header.Get("Content-Type") != "application/json" {
		s.t.Errorf("%s %s at %q with %v", r.Method, r.URL, r.Host, r.Header)
	}
	if req.ToolServer != "payments" || req.ToolName != "charge" || string(req.Args) != args {
		s.t.Errorf("request %s", body)
	}
	switch req.IdempotencyKey {
	case "success":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"state":"COMPLETED","status":"SUCCESS","result":%s,"replayed":false}`+"\n", args)
	case "failure":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `{"state":"FAILED","status":"FAILURE","error_code":"TOOL_ERROR","replayed":false}`)
	case "conflict":
		w.Header().Set("Content-Type", wire.ProblemType)
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintln(w, `{"type":"about:blank","status":422,"code":"IDEMPOTENCY_KEY_CONFLICT"}`)
	case "doubt":
		w.Header().Set("Content-Type", wire.ProblemType)
		w.WriteHeader(http.StatusConflict)
		fmt.Fprintln(w, `{"type":"about:blank","status":409,"code":"EFFECT_IN_DOUBT"}`)
	}
}

func TestClientsMakeACall(t *testing.T) {
	// Not t.TempDir: a socket's path may have at most 104 bytes.
	dir, err := os.MkdirTemp("", "tgad")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(standIn{t})
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()

	for script, interpreter := range map[string]string{"call.sh": "curl", "call.py": "python3", "call.mjs": "node"} {
		t.Run(script, func(t *testing.T) {
			serial.Program(t, interpreter)
			for key, want := range map[string]int{"success": 0, "failure": 1, "conflict": 1, "doubt": 4} {
				out, code := run(t, script, socket, "payments", "charge", key, args)
				if code != want {
					t.Errorf("%s: exit %d, want %d: %s", key, code, want, out)
				}
				if key == "success" && !strings.Contains(out, `"result":`+args) {
					t.Errorf("answer %s", out)
				}
				if !json.Valid([]byte(out)) {
					t.Errorf("%s: stdout is no JSON: %q", key, out)
				}
			}
			if _, code := run(t, script, socket); code != 2 {
				t.Errorf("no arguments: exit %d, want 2", code)
			}
			if _, code := run(t, script, filepath.Join(dir, "nobody"), "payments", "charge", "success", args); code != 1 {
				t.Errorf("no daemon: exit %d, want 1", code)
			}
		})
	}
}

func run(t *testing.T, script string, args ...string) (stdout string, code int) {
	t.Helper()
	out, err := exec.Command("./"+script, args...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return string(out), code
}
