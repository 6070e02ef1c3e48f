package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tgad/tgad/runtime"
)

// proxied is the command line of docs/UI.md for a view behind a proxy.
const proxied = "tgad ui --listen unix:ui.sock --proxy-host tgad.shop.example --jwks keys.json --issuer https://login.shop.example --audience tgad"

// TestViewBehindAProxy runs that command line and acts as the proxy: with the host and the token of a
// visitor.
func TestViewBehindAProxy(t *testing.T) {
	p := newProcess(t)
	p.start()
	res, err := p.client.Call(t.Context(), runtime.Request{Server: "payments", Tool: "charge", Key: "order-17", Args: []byte(`{"account":"acme","amount":5}`)})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "tgad-p-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := fmt.Sprintf(`{"keys":[{"kid":"1","kty":"OKP","crv":"Ed25519","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public))
	if err := os.WriteFile(filepath.Join(dir, "keys.json"), []byte(keys), 0o600); err != nil {
		t.Fatal(err)
	}
	token := func(audience string, end time.Duration) string {
		of := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"sub": "ann@shop.example", "iss": "https://login.shop.example", "aud": audience, "exp": time.Now().Add(end).Unix()})
		of.Header["kid"] = "1"
		said, err := of.SignedString(private)
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	args := strings.Fields(proxied)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "TGAD_SOCKET="+p.socket), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "open https://tgad.shop.example/\n" {
		t.Fatalf("%q %v", line, err)
	}
	proxy := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "ui.sock"))
	}}}
	defer proxy.CloseIdleConnections()
	get := func(said ...string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://tgad.shop.example/traces/"+res.TraceID.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range said {
			req.Header.Add("Authorization", text)
		}
		resp, err := proxy.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(page), "order-17") {
			t.Fatalf("%d %v %s", resp.StatusCode, err, page)
		}
		return string(page)
	}
	good := token("tgad", time.Minute)
	for name, said := range map[string][]string{"Bearer": {"Bearer " + good}, "bare": {good}} {
		if page := get(said...); !strings.Contains(page, "You are ann@shop.example") {
			t.Errorf("%s: %s", name, page)
		}
	}
	for name, said := range map[string][]string{
		"nobody": nil, "two": {"Bearer " + good, "Bearer " + good}, "for others": {"Bearer " + token("shop", time.Minute)}, "over": {"Bearer " + token("tgad", -time.Minute)}, "cut": {"Bearer " + good[:len(good)-2]},
	} {
		if page := get(said...); !strings.Contains(page, "you can look at everything, and do nothing") {
			t.Errorf("%s: %s", name, page)
		}
	}
	for _, args := range [][]string{
		{"--listen", "unix:x"}, {"--proxy-host", "x"}, {"--jwks", "keys.json"}, {"--proxy-host", "x", "--jwks", "keys.json", "--issuer", "i", "--audience", "a"},
	} {
		if out, code := p.run(append([]string{"ui"}, args...)...); code != 2 {
			t.Errorf("%v: %d %s", args, code, out)
		}
	}
}
