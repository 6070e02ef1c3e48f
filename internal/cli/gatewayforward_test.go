//go:build unix

package cli

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/gateway"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/internal/mcpfront/subject"
	"github.com/tgad/tgad/internal/testlog"
)

// TestGatewayForwardsWhatItsFileSays: the gateway forwards clients' credentials as the file says: first in
// Authorization, then, in a new file with identities, in a header of the server's own. A server never sees
// the key of an identity.
func TestGatewayForwardsWhatItsFileSays(t *testing.T) {
	const token, key = "tok-1f6e0c-alice", "key-of-an-identity"
	crm := fronttest.Guard(t, token)
	dir, err := os.MkdirTemp("", "tgad-cli-fwd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TGAD_DATA", "")
	t.Setenv("TGAD_SOCKET", "")
	l := &live{t: t, dir: dir, log: &testlog.Buffer{}}
	l.file("allow_all = true\n[[server]]\nid = \"crm\"\ntype = \"mcp-url\"\nurl = \"" + crm.URL + "\"\nforward_auth = \"authorization\"\n")
	socket := filepath.Join(dir, "none")
	c := Gateway(&Streams{In: strings.NewReader(""), Out: l.log, Err: l.log}, &socket)
	c.SilenceErrors, c.SilenceUsage = true, true
	at := filepath.Join(dir, "gw")
	c.SetArgs([]string{"--config", filepath.Join(dir, "tgad.toml"), "--data", filepath.Join(dir, "log"), "--listen", "unix:" + at, "--log-level", "debug"})
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.ExecuteContext(ctx) }()
	defer func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
		l.file("") // it has only digests, but it does not belong to the gateway
		fronttest.SearchFor(t, dir, token, key)("what was logged", l.log.String())
	}()
	l.listens(at)
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", at)
	}}}
	// The task of a call has a name that a gateway which starts later would give it too.
	task := func(identity string, header ...string) {
		t.Helper()
		body, h := fronttest.Modern("1", "tools/call", `"name":"crm__job","arguments":{}`, append(header, "Mcp-Name", "crm__job")...)
		_, got, _, err := fronttest.ExchangeBy(client, "http://gateway/mcp", body, h...)
		secret, secretErr := subject.ReadSecret(filepath.Join(dir, "log", "mcp"))
		if err != nil || secretErr != nil {
			t.Fatal(err, secretErr)
		}
		name := names.Tasks{Of: identity, Seal: func(text string) string { return secret.Seal(gateway.SealOfTasks, text) }}.Seen("crm", "t1")
		fronttest.Has(t, got, `"taskId":"`+name+`"`)
	}
	call := func(n int, header ...string) (int, string, http.Header) {
		t.Helper()
		body, h := fronttest.Modern("1", "tools/call", fmt.Sprintf(`"name":"crm__charge","arguments":{"n":%d}`, n), append(header, "Mcp-Name", "crm__charge")...)
		status, got, back, err := fronttest.ExchangeBy(client, "http://gateway/mcp", body, h...)
		if err != nil {
			t.Fatal(err)
		}
		return status, got, back
	}
	if status, got, h := call(1); status != 401 || h.Get("WWW-Authenticate") != fronttest.WantsToken {
		t.Errorf("without a token: %d %v %s", status, h, got)
	}
	if status, got, _ := call(1, "Authorization", "Bearer "+token); status != 200 || !strings.Contains(got, "paid by lice") {
		t.Errorf("with a token: %d %s", status, got)
	}
	task("", "Authorization", "Bearer "+token)

	ann := fmt.Sprintf("[[gateway.identity]]\nname = \"ann\"\nkey_sha256 = \"%x\"\n", sha256.Sum256([]byte(key)))
	was := l.conf
	for _, bad := range []string{was + ann, was + strings.Replace(strings.Replace(was[strings.Index(was, "[["):], "crm", "hrm", 1), "127.0.0.1", "localhost", 1)} {
		l.file(bad)
		l.hangup(holdsStill)
	}
	l.file(strings.Replace(was, `"authorization"`, `"header"`, 1) + ann)
	l.hangup("level=WARN msg=\"configuration reloaded\"") // its log reports that first, and the gateway later
	if status, got, _ := call(2, "Authorization", "Bearer "+token); status != 401 {
		t.Errorf("a token where a key is wanted: %d %s", status, got)
	}
	if status, got, _ := call(2, "Authorization", "Bearer "+key); status != 200 || !strings.Contains(got, "not sent") || !strings.Contains(got, "Tgad-Authorization-Crm") {
		t.Errorf("a key without a token: %d %s", status, got)
	}
	if status, got, _ := call(2, "Authorization", "Bearer "+key, "Tgad-Authorization-Crm", "Bearer "+key); status != 400 {
		t.Errorf("a key as the token: %d %s", status, got)
	}
	if status, got, _ := call(2, "Authorization", "Bearer "+key, "Tgad-Authorization-Crm", "Bearer "+token); status != 200 || !strings.Contains(got, "paid by lice") {
		t.Errorf("a key and a token: %d %s", status, got)
	}
	task("ann", "Authorization", "Bearer "+key, "Tgad-Authorization-Crm", "Bearer "+token)
	crm.Set(func() {
		for auth := range crm.Seen {
			if auth != "" && auth != "Bearer "+token {
				t.Errorf("the server saw %q", auth)
			}
		}
	})
}

// TestAcceptOfAServerThatWantsAToken: the definitions are listed with the credentials of a file, and pinned.
func TestAcceptOfAServerThatWantsAToken(t *testing.T) {
	crm := fronttest.Guard(t, "tok-alic")
	dir := t.TempDir()
	conf := "[[server]]\nid = \"crm\"\ntype = \"mcp-url\"\nurl = \"" + crm.URL + "\"\nforward_auth = \"authorization\"\n"
	if _, err := runGateway(t, dir, conf, "", "accept", "crm"); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "h"), []byte("Authorization: Bearer tok-alic\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := runGateway(t, dir, conf, "", "accept", "crm", "--headers-file", filepath.Join(dir, "h"))
	if err != nil || !strings.Contains(said, "charge") || strings.Contains(said, "tok-alic") {
		t.Errorf("%v\n%s", err, said)
	}
}

// listens waits until somebody listens at a socket. The socket's file exists a moment earlier.
func (l *live) listens(at string) {
	l.t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial("unix", at)
		if err == nil {
			err = c.Close()
		}
		if err == nil {
			return
		}
		if time.Now().After(until) {
			l.t.Fatal(err)
		}
	}
}
