package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tgad/tgad/runtime"
)

// TestViewInABrowser starts the view as docs/UI.md does, opens the printed link, and kills the daemon: the
// view says so, and shows the call again when the daemon is back. With --data, without a daemon, it shows
// the store and has no buttons.
func TestViewInABrowser(t *testing.T) {
	p := newProcess(t)
	p.start()
	res, err := p.client.Call(t.Context(), runtime.Request{Server: "payments", Tool: "charge", Key: "order-17", Args: []byte(`{"account":"acme","amount":5}`)})
	if err != nil {
		t.Fatal(err)
	}
	call := "/traces/" + res.TraceID.String()
	get, end := p.view("ui")
	if status, page := get(call); status != http.StatusOK || !strings.Contains(page, "order-17") || !strings.Contains(page, "COMPLETED") {
		t.Fatalf("the call: %d %s", status, page)
	}
	p.end(syscall.SIGKILL)
	if status, page := get("/"); status < 500 || !strings.Contains(page, `role="alert"`) {
		t.Errorf("without a daemon: %d %s", status, page)
	}
	p.start()
	if status, page := get(call); status != http.StatusOK || !strings.Contains(page, "order-17") {
		t.Errorf("with the daemon back: %d %s", status, page)
	}
	if code := end(); code != 0 {
		t.Errorf("the view ends with %d", code)
	}
	p.end(syscall.SIGTERM)
	get, end = p.view("ui", "--json", "--data", p.data)
	if status, page := get(call); status != http.StatusOK || !strings.Contains(page, "order-17") || !strings.Contains(page, "The store is at rest") {
		t.Errorf("at rest: %d %s", status, page)
	}
	if code := end(); code != 0 {
		t.Errorf("the view at rest ends with %d", code)
	}
	if out, code := p.run("ui", "--listen", "0.0.0.0:0"); code != 1 || !strings.Contains(out, "VALIDATION_ERROR") {
		t.Errorf("a view for everybody: %d %s", code, out)
	}
}

// TestViewOfAFile starts the view of an export without its store, and of a damaged one.
func TestViewOfAFile(t *testing.T) {
	p := newProcess(t)
	p.start()
	res, err := p.client.Call(t.Context(), runtime.Request{Server: "payments", Tool: "charge", Key: "order-17", Args: []byte(`{"account":"acme","amount":5}`)})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "all.ndjson")
	if out, code := p.run("export", "--socket", p.socket, "-o", file); code != 0 {
		t.Fatalf("export: %d %s", code, out)
	}
	p.end(syscall.SIGTERM)
	call := "/traces/" + res.TraceID.String()
	get, end := p.view("ui", file)
	if status, page := get(call); status != http.StatusOK || !strings.Contains(page, "order-17") || !strings.Contains(page, "all.ndjson (export): 1 calls, 4 entries") {
		t.Errorf("the file: %d %s", status, page)
	}
	if code := end(); code != 0 {
		t.Errorf("the view of a file ends with %d", code)
	}
	raw, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, raw[:len(raw)-30], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	get, end = p.view("ui", file)
	if status, page := get("/"); status != http.StatusOK || !strings.Contains(page, "This file is damaged") || !strings.Contains(page, "line ") {
		t.Errorf("the damaged file: %d %s", status, page)
	}
	if code := end(); code != 0 {
		t.Errorf("the view of a damaged file ends with %d", code)
	}
	for want, args := range map[string][]string{"NOT_FOUND": {"ui", file + ".none"}, "--data DIR shows a store": {"ui", p.data}, "not both": {"ui", file, "--data", p.data}} {
		if out, code := p.run(args...); code == 0 || !strings.Contains(out, want) {
			t.Errorf("%v: %d %s", args, code, out)
		}
	}
}

// view runs the verb and logs in. get fetches a page, end interrupts the view and returns its exit code.
func (p *process) view(args ...string) (get func(path string) (int, string), end func() int) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	p.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "tgad", args...)
	if len(args) == 1 {
		cmd.Env = append(os.Environ(), "TGAD_SOCKET="+p.socket)
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	link := regexp.MustCompile(`^(?:open |\{"url":")(http://127\.0\.0\.1:\d+)(/login\?token=[A-Z2-7]{26})(?:"\})?\n$`).FindStringSubmatch(line)
	if link == nil {
		p.t.Fatalf("it prints %q, %v", line, err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	get = func(path string) (int, string) {
		p.t.Helper()
		resp, err := browser.Get(link[1] + path)
		if err != nil {
			p.t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			p.t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if status, page := get(link[2]); status != http.StatusOK {
		p.t.Fatalf("login: %d %s", status, page)
	}
	return get, func() int {
		p.t.Helper()
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			p.t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			p.t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode()
	}
}
