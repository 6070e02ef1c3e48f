package fronttest

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/entry"
)

// ModernMeta is the `_meta` that each request of revision 2026-07-28 has.
const ModernMeta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// Post sends a message over HTTP, with headers in pairs, and returns status and body.
func Post(t *testing.T, url, body string, header ...string) (int, string) {
	t.Helper()
	status, got, err := TryPost(url, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	return status, got
}

func TryPost(url, body string, header ...string) (int, string, error) {
	status, got, _, err := exchange(&http.Client{Timeout: time.Minute}, http.MethodPost, url, body, header)
	return status, got, err
}

// Exchange is [Post] with the headers of the answer.
func Exchange(t *testing.T, url, body string, header ...string) (int, string, http.Header) {
	t.Helper()
	status, got, h, err := exchange(&http.Client{Timeout: time.Minute}, http.MethodPost, url, body, header)
	if err != nil {
		t.Fatal(err)
	}
	return status, got, h
}

// Fetch gets a URL and returns status and body.
func Fetch(t *testing.T, url string, header ...string) (int, string) {
	t.Helper()
	status, got, _, err := exchange(&http.Client{Timeout: time.Minute}, http.MethodGet, url, "", header)
	if err != nil {
		t.Fatal(err)
	}
	return status, got
}

// ExchangeBy is [Exchange] with the caller's HTTP client.
func ExchangeBy(c *http.Client, url, body string, header ...string) (int, string, http.Header, error) {
	return exchange(c, http.MethodPost, url, body, header)
}

func exchange(c *http.Client, method, url, body string, header []string) (int, string, http.Header, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), resp.Header, err
}

// Modern makes a request of revision 2026-07-28 and the headers that belong to it.
func Modern(id, method, members string, header ...string) (string, []string) {
	if members != "" {
		members += ","
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + members + `"_meta":` + ModernMeta + `}}`,
		append([]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}, header...)
}

// Session2025 makes a handshake over HTTP and returns the session's header.
func Session2025(t *testing.T, url string) []string {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	id := resp.Header.Get("Mcp-Session-Id")
	if id == "" {
		t.Fatalf("no session: %s", resp.Status)
	}
	h := []string{"Mcp-Session-Id", id}
	if status, got := Post(t, url, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, h...); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, got)
	}
	return h
}

// Door serves a lobby over HTTP and returns its URL.
func (w *World) Door(made func(life context.Context) entry.Lobby) string {
	w.T.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- entry.Serve(ctx, l, slog.New(slog.DiscardHandler), made) }()
	w.T.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.T.Error(err)
		}
	})
	return "http://" + l.Addr().String() + "/mcp"
}
