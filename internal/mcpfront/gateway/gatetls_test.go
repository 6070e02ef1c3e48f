package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/schemas/tga"
)

// signedByItself is a self-signed certificate of this machine, for server and client.
func signedByItself(t *testing.T) (tls.Certificate, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, cert
}

// TestGatewayOverTLS: with TLS clients may be on other machines, and a call without TLS does not get in.
func TestGatewayOverTLS(t *testing.T) {
	w := newWorld(t)
	pair, cert := signedByItself(t)
	var shown atomic.Pointer[x509.Certificate]
	d := &Door{TLS: &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: x509.NewCertPool()}, Gates: map[string]*Gate{"ann": w.gateTo(names.Lists{}, w.behind("a", names.Names{}))}, Who: func(said string, cert *x509.Certificate) string {
		shown.Store(cert)
		return strings.TrimPrefix(said, "Bearer ")
	}}
	d.TLS.ClientCAs.AddCert(cert)
	if err := d.Listen(t.Context(), "unix:"+filepath.Join(w.Dir, "s")); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("TLS on a socket of this machine: %v", err)
	}
	free, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().(*net.TCPAddr)
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Listen(ctx, fmt.Sprintf("0.0.0.0:%d", at.Port)) }()
	defer func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	fronttest.Eventually(t, "somebody listens", func() bool {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", at.Port))
		return err == nil && c.Close() == nil
	})
	conf := &tls.Config{RootCAs: d.TLS.ClientCAs}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: conf}}
	defer client.CloseIdleConnections()
	ask := func(scheme, name string) (int, string) {
		body, header := fronttest.Modern("1", "tools/call", `"name":"a__charge","arguments":{"n":1}`, "Mcp-Name", "a__charge")
		req, err := http.NewRequest(http.MethodPost, fmt.Sprintf("%s://127.0.0.1:%d/mcp", scheme, at.Port), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i, all := 0, append(header, "Authorization", "Bearer "+name, "Content-Type", "application/json", "Accept", "application/json, text/event-stream"); i < len(all); i += 2 {
			req.Header.Set(all[i], all[i+1])
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(raw)
	}
	for _, c := range []struct {
		scheme, name string
		status       int
	}{{"https", "ann", 200}, {"https", "eve", 401}, {"http", "ann", 400}} {
		if status, got := ask(c.scheme, c.name); status != c.status {
			t.Errorf("%+v: %d %s", c, status, got)
		}
	}
	if shown.Load() != nil {
		t.Error("a certificate of a client that showed none")
	}
	conf.Certificates = []tls.Certificate{pair}
	client.CloseIdleConnections()
	if status, got := ask("https", "ann"); status != 200 || shown.Load() == nil || !shown.Load().Equal(cert) {
		t.Errorf("a client with a certificate: %d %s, shown %v", status, got, shown.Load() != nil)
	}
	if e := fronttest.JournalOf(t, w.JournalOf("a")); len(e) != 2 {
		t.Errorf("effects: %+v", e)
	}
}
