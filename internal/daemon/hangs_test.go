package daemon

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// hole is a neighbour that takes connections and says nothing on them.
type hole struct {
	net.Listener
	taken atomic.Int64
	mu    sync.Mutex
	conns []net.Conn
}

func newHole(t *testing.T) *hole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hole{Listener: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.mu.Lock()
			h.conns = append(h.conns, c)
			h.mu.Unlock()
			h.taken.Add(1)
			go func() { _, _ = io.Copy(io.Discard, c) }() // it reads, and ends when the peer or the test does
		}
	}()
	t.Cleanup(func() {
		ends(t, l)
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, c := range h.conns {
			_ = c.Close() // the peer may have
		}
	})
	return h
}

// deafServer is an MCP server that says when it has a call, and heeds nothing from then on.
const deafServer = `trap '' TERM INT HUP
while read -r line; do
	id=$(printf %s "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
	case $line in
	*'"method":"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}\n' "$id" ;;
	*'"method":"notifications/'*) ;;
	*'"method":"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"x","inputSchema":{"type":"object"}}]}}\n' "$id" ;;
	*'"method":"tools/call"'*) break ;;
	*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id" ;;
	esac
done
: >"$0.asked.$$"
while :; do sleep 1; done
`

// TestDaemonEndsBesideNeighboursThatHang: each neighbour that a daemon may be waiting for when it is told to end takes its connection and
// says nothing, and its tool servers heed neither the end of their input nor a signal. It waits for the slowest of them and
// not for one after the other: the units that packages install kill it 30 seconds after its time to drain.
func TestDaemonEndsBesideNeighboursThatHang(t *testing.T) {
	serial.Long(t)
	h := newHole(t)
	signer, _, _ := signs(t)
	signer, _, _ = strings.Cut(signer, "[[evidence.place]]")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "x")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "y")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+h.Addr().String())
	config := signer + `
[[evidence.place]]
url = "http://HOLE/checkpoint"
[[audit]]
id = "hook"
type = "webhook"
url = "http://HOLE"
secret_file = "SECRET"
[[audit]]
id = "syslog"
type = "syslog"
address = "tcp://HOLE"
[[notify]]
id = "pager"
type = "webhook"
url = "http://HOLE"
secret_file = "SECRET"
after = "1ms"
pause = "1ms"
[backup]
to = "s3://bucket/p"
endpoint = "http://HOLE"
region = "r"
every = "100ms"
[[server]]
id = "http"
type = "http"
url = "http://HOLE"
[[server]]
id = "mcp"
type = "mcp-url"
url = "http://HOLE"
[limits]
drain_timeout = "500ms"
`
	servers := []string{"http", "mcp"}
	script := filepath.Join(t.TempDir(), "server")
	if err := os.WriteFile(script, []byte(deafServer), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		id := fmt.Sprintf("child%d", i)
		servers = append(servers, id)
		config += fmt.Sprintf("[[server]]\nid = %q\ntype = \"mcp-command\"\ncommand = [\"/bin/sh\", %q]\n", id, script)
	}
	b := setup(t, strings.NewReplacer("HOLE", h.Addr().String(), "SECRET", secret).Replace(config))
	b.start()
	if _, err := b.client.Call(t.Context(), charge("k")); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for _, server := range servers {
		calls.Go(func() {
			res, err := b.client.Call(t.Context(), runtime.Request{Server: server, Tool: "x", Key: "hangs", Args: []byte(`{}`)})
			if err == nil && res.State == tga.Completed && res.Status == tga.StatusSuccess {
				t.Errorf("%s has answered: %+v", server, res)
			}
		})
	}
	soon(t, "the neighbours are asked", func() bool { return h.taken.Load() >= 6 })
	soon(t, "the children have their calls", func() bool {
		asked, err := filepath.Glob(script + ".asked.*")
		return err == nil && len(asked) == 8
	})
	ended := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		b.stop()
		calls.Wait()
	}()
	select {
	case <-ended:
		t.Logf("it has ended after %s", time.Since(began))
	case <-time.After(30 * time.Second):
		t.Error("it is waiting still")
		<-ended
	}
}
