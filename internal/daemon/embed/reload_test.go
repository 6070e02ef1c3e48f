package embed

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
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

// TestReloadWhileTheStoreIsTakenOver: a configuration that comes while this process opens the store holds once it is
// open, and Reload says so. The opening waits for a place of checkpoints until the test has reloaded.
func TestReloadWhileTheStoreIsTakenOver(t *testing.T) {
	dir, err := os.MkdirTemp("", "tgad-embed-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	asked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	place := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		once.Do(func() { close(asked) })
		<-release
		w.WriteHeader(http.StatusNotFound)
	}))
	defer place.Close()
	secret, _, err := checkpoint.NewKey("shop.example/tgad")
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	conf := func(decision string) *config.Config {
		t.Helper()
		c, err := assemble.Parse("c.toml", fmt.Appendf(nil, "[limits]\ndrain_timeout = \"1s\"\n[[rule]]\ndecision = %q\n[evidence]\nkey_file = %q\n[[evidence.place]]\nurl = %q\n", decision, key, place.URL))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first, err := Start(t.Context(), filepath.Join(dir, "store"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Start(t.Context(), filepath.Join(dir, "store"), conf("DENY"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	first.Close()
	<-asked
	type reloaded struct {
		own bool
		err error
	}
	done := make(chan reloaded, 1)
	go func() {
		own, err := second.Reload(conf("APPROVE"))
		done <- reloaded{own, err}
	}()
	time.Sleep(50 * time.Millisecond) // a Reload that does not wait is over by then
	close(release)
	if got := <-done; got.err != nil || !got.own {
		t.Errorf("own %v, %v", got.own, got.err)
	}
	c := second.Client(client.Options{})
	defer c.Close()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		b, err := c.Begin(t.Context(), runtime.BeginRequest{BeginID: "b", Request: runtime.Request{Server: "s", Tool: "t", Args: []byte("{}"), Key: "k"}})
		if err != nil && time.Now().Before(until) {
			continue // the store is being opened
		}
		if err != nil || b.Standing != runtime.BeginSend {
			t.Errorf("after the reload: %v, %v", b.Standing, err)
		}
		break
	}
}
