package embed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// TestEmbeddedDaemonReloads: the daemon of this process takes another configuration, and keeps its own where that takes a
// restart; a peer cannot have it do so. Where another process has the store, the configuration holds once it is taken over.
func TestEmbeddedDaemonReloads(t *testing.T) {
	dir, err := os.MkdirTemp("", "tgad-embed-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	conf := func(text string) *config.Config {
		t.Helper()
		c, err := assemble.Parse("c.toml", []byte("[limits]\ndrain_timeout = \"1s\"\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	approve, deny := conf("[[rule]]\ndecision = \"APPROVE\"\n"), conf("[[rule]]\ndecision = \"DENY\"\n")
	start := func() *Daemon {
		t.Helper()
		e, err := Start(t.Context(), filepath.Join(dir, "store"), deny, nil)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	first := start()
	second := start()
	n := 0
	standing := func(c *client.Client) runtime.Standing {
		t.Helper()
		n++
		for until := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
			b, err := c.Begin(t.Context(), runtime.BeginRequest{BeginID: strings.Repeat("b", n), Request: runtime.Request{Server: "s", Tool: "t", Args: []byte("{}"), Key: strings.Repeat("k", n)}})
			if err == nil {
				return b.Standing
			}
			if time.Now().After(until) {
				t.Fatal(err)
			}
		}
	}
	own, other := first.Client(client.Options{}), second.Client(client.Options{})
	defer own.Close()
	defer other.Close()
	if got := standing(own); got != runtime.BeginDenied {
		t.Fatal(got)
	}
	if is, err := first.Reload(approve); err != nil || !is {
		t.Fatal(is, err)
	}
	if got := standing(other); got != runtime.BeginSend {
		t.Errorf("after a reload: %v", got)
	}
	if is, err := first.Reload(conf("[store]\nmemtable_bytes = \"2MiB\"\n[[rule]]\ndecision = \"DENY\"\n")); !is || err == nil || !strings.Contains(err.Error(), "needs a restart: store.memtable_bytes") {
		t.Errorf("what takes a restart: %v %v", is, err)
	}
	if _, err := client.Reload(t.Context(), own); tga.CodeOf(err) != tga.ValidationError || !strings.Contains(err.Error(), "on SIGHUP") {
		t.Errorf("a peer's reload: %v", err)
	}
	if got := standing(own); got != runtime.BeginSend {
		t.Errorf("after what was refused: %v", got)
	}
	if is, err := second.Reload(approve); err != nil || is {
		t.Errorf("the store is another's: %v %v", is, err)
	}
	first.Close()
	if got := standing(other); got != runtime.BeginSend {
		t.Errorf("who takes the store over has not the newest configuration: %v", got)
	}
	second.Close()
}
