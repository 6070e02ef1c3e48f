package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// authority signs certificates.
type authority struct {
	*testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	a := &authority{T: t}
	a.cert = &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	certPEM, _, cert, key := a.make(a.cert, nil)
	a.cert, a.key, a.pem = cert, key, certPEM
	return a
}

// make makes a certificate. If by is nil, it is signed with its own key.
func (a *authority) make(c *x509.Certificate, by *authority) (certPEM, keyPEM string, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: "ann.example"}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := c, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		a.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		a.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})), cert, key
}

// client is a certificate of a client with names.
func (a *authority) client(c x509.Certificate) *tls.Certificate {
	a.Helper()
	if c.ExtKeyUsage == nil {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	certPEM, keyPEM, _, _ := a.make(&c, a)
	pair, err := tls.X509KeyPair([]byte(certPEM), []byte(keyPEM))
	if err != nil {
		a.Fatal(err)
	}
	return &pair
}

func (a *authority) server() (certPEM, keyPEM string) {
	certPEM, keyPEM, _, _ = a.make(&x509.Certificate{DNSNames: []string{"gateway.example"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, a)
	return certPEM, keyPEM
}

func spiffe(t *testing.T, name string) []*url.URL {
	u, err := url.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return []*url.URL{u}
}

// TestCertificatesAreTold: a certificate has an identity only by a name that a trusted authority signed.
func TestCertificatesAreTold(t *testing.T) {
	own, clients, stranger := newAuthority(t), newAuthority(t), newAuthority(t)
	certPEM, keyPEM := own.server()
	files := Files{Cert: file(t, certPEM), Key: file(t, keyPEM), ClientCA: file(t, clients.pem)}
	var said strings.Builder
	conf, err := TLS(files, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	const key = "ann-0123456789-key"
	b, err := New([]Known{
		{Name: "ann", KeyFile: file(t, key), Certificate: "spiffe://shop.example/ann"},
		{Name: "bob", Certificate: "bob.example"}, {Name: "carl", Certificate: "carl@shop.example"},
		{Name: "common", Certificate: "ann.example"}, // the common name of all of them
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var resumed atomic.Bool
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var cert *x509.Certificate
		if len(r.TLS.VerifiedChains) > 0 {
			cert = r.TLS.PeerCertificates[0]
		}
		if r.TLS.DidResume {
			resumed.Store(true)
		}
		_, _ = fmt.Fprintf(w, "%s %s", r.Proto, b.Of(r.Header.Get("Authorization"), cert))
	}))
	srv.TLS = conf
	srv.StartTLS()
	defer srv.Close()
	tickets := map[*tls.Certificate]tls.ClientSessionCache{}
	ask := func(show *tls.Certificate, said string) (string, error) {
		roots := x509.NewCertPool()
		roots.AddCert(own.cert)
		if tickets[show] == nil {
			tickets[show] = tls.NewLRUClientSessionCache(1)
		}
		c := tls.Config{RootCAs: roots, ServerName: "gateway.example", ClientSessionCache: tickets[show]} // which shows no certificate again
		if show != nil {
			// The client shows its certificate whatever authorities the server names.
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return show, nil }
		}
		h := &http.Client{Transport: &http.Transport{TLSClientConfig: &c, DisableKeepAlives: true, ForceAttemptHTTP2: true}}
		req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL, nil)
		if err != nil {
			return "", err
		}
		if said != "" {
			req.Header.Set("Authorization", said)
		}
		resp, err := h.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		return string(raw), err
	}
	ann := clients.client(x509.Certificate{URIs: spiffe(t, "spiffe://shop.example/ann")})
	for name, x := range map[string]struct {
		show *tls.Certificate
		said string
		want string // "-": no connection
	}{
		"a URI":                        {ann, "", "ann"},
		"a DNS name":                   {clients.client(x509.Certificate{DNSNames: []string{"x.example", "bob.example"}}), "", "bob"},
		"an e-mail address":            {clients.client(x509.Certificate{EmailAddresses: []string{"carl@shop.example"}}), "", "carl"},
		"the common name":              {clients.client(x509.Certificate{}), "", ""},
		"a name of nobody":             {clients.client(x509.Certificate{DNSNames: []string{"dora.example"}}), "", ""},
		"a name behind a name":         {clients.client(x509.Certificate{DNSNames: []string{"bob.example.evil"}}), "", ""},
		"two names of two":             {clients.client(x509.Certificate{URIs: spiffe(t, "spiffe://shop.example/ann"), DNSNames: []string{"bob.example"}}), "", ""},
		"and its key":                  {ann, "Bearer " + key, "ann"},
		"and another's key":            {clients.client(x509.Certificate{DNSNames: []string{"bob.example"}}), "Bearer " + key, ""},
		"and no good key":              {ann, "Bearer nonsense", ""},
		"of nobody, and a good key":    {clients.client(x509.Certificate{DNSNames: []string{"dora.example"}}), "Bearer " + key, "ann"},
		"none, and a good key":         {nil, "Bearer " + key, "ann"},
		"none":                         {nil, "", ""},
		"of another authority":         {stranger.client(x509.Certificate{URIs: spiffe(t, "spiffe://shop.example/ann")}), "", "-"},
		"of the gateway's own":         {own.client(x509.Certificate{URIs: spiffe(t, "spiffe://shop.example/ann")}), "", "-"},
		"one that is over":             {clients.client(x509.Certificate{URIs: spiffe(t, "spiffe://shop.example/ann"), NotAfter: time.Now().Add(-time.Minute)}), "", "-"},
		"one that is for a server":     {clients.client(x509.Certificate{URIs: spiffe(t, "spiffe://shop.example/ann"), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}), "", "-"},
		"another's key under its name": {&tls.Certificate{Certificate: ann.Certificate, PrivateKey: stranger.key}, "", "-"},
	} {
		got, err := ask(x.show, x.said)
		if want := "HTTP/1.1 " + x.want; x.want == "-" && err == nil || x.want != "-" && got != want {
			t.Errorf("%s: %q %v, want %q", name, got, err, x.want)
		}
	}

	// The files change while the gateway serves. At first they do not fit together.
	change := func(path, content string, at time.Duration) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(at)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	// Only the authority is replaced. No TLS session from before may be resumed.
	if got, err := ask(ann, ""); got != "HTTP/1.1 ann" || !resumed.Load() {
		t.Errorf("a session that goes on: %q %v, resumed %v", got, err, resumed.Load())
	}
	change(files.ClientCA, stranger.pem, time.Second/2)
	if got, err := ask(ann, ""); err == nil {
		t.Errorf("a session of an authority that is trusted no more: %q", got)
	}
	change(files.ClientCA, clients.pem, time.Second/4)
	if got, err := ask(ann, ""); got != "HTTP/1.1 ann" {
		t.Errorf("the authority is back: %q %v", got, err)
	}
	certPEM, keyPEM = own.server()
	change(files.Cert, certPEM, time.Second)
	for range 2 {
		if got, err := ask(ann, ""); got != "HTTP/1.1 ann" {
			t.Errorf("with half of a new pair: %q %v", got, err)
		}
	}
	if n := strings.Count(said.String(), "those from before hold"); n != 1 {
		t.Errorf("the log was told %d times of one change:\n%s", n, said.String())
	}
	change(files.Key, keyPEM, 2*time.Second)
	change(files.ClientCA, stranger.pem, 3*time.Second)
	if got, err := ask(ann, ""); err == nil {
		t.Errorf("an authority that is trusted no more: %q", got)
	}
	if got, err := ask(stranger.client(x509.Certificate{DNSNames: []string{"bob.example"}}), ""); got != "HTTP/1.1 bob" {
		t.Errorf("the new authority: %q %v", got, err)
	}
}

// TestFilesOfTLS: files that cannot be used are an error when the gateway starts.
func TestFilesOfTLS(t *testing.T) {
	own := newAuthority(t)
	certPEM, keyPEM := own.server()
	other, _ := own.server()
	open := filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(open, []byte(keyPEM), 0o644); err != nil {
		t.Fatal(err)
	}
	good := Files{Cert: file(t, certPEM), Key: file(t, keyPEM)}
	if _, err := TLS(good, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]Files{
		"no certificate":            {Cert: "/nowhere", Key: good.Key},
		"no key":                    {Cert: good.Cert, Key: "/nowhere"},
		"another's key":             {Cert: file(t, other), Key: good.Key},
		"a key that all can read":   {Cert: good.Cert, Key: open},
		"no authorities":            {Cert: good.Cert, Key: good.Key, ClientCA: "/nowhere"},
		"authorities that are none": {Cert: good.Cert, Key: good.Key, ClientCA: file(t, "nobody")},
	} {
		if _, err := TLS(f, slog.New(slog.DiscardHandler)); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%s: %v", name, err)
		}
	}
}
