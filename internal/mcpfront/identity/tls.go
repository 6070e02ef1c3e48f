package identity

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/schemas/tga"
)

// Files are those that a gateway's TLS is made of, as PEM.
type Files struct {
	Cert, Key string
	ClientCA  string // who signs the certificates of clients; "" asks for none
}

// TLS returns how a gateway speaks TLS with its clients. A client may show a certificate, which must be a good
// one then. The files are read again for a connection that begins after one of them was changed; while they do not fit
// together, the ones from before hold, and the log says so, once for each change. VALIDATION_ERROR: they cannot be used.
func TLS(f Files, log *slog.Logger) (*tls.Config, error) {
	c := &certificates{files: f, log: log}
	if err := c.read(); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.now(), nil }}, nil
}

type certificates struct {
	files Files
	log   *slog.Logger

	mu      sync.Mutex
	changed [3]time.Time // of the files, when they were read
	told    [3]time.Time // of files that could not be used, when the log was told
	conf    *tls.Config
}

// now is the configuration of a connection that begins.
func (c *certificates) now() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.files.changed(); c.changed != now {
		// Perhaps half of them are written: the next connection tries again.
		if err := c.read(); err != nil && c.told != now {
			c.told = now
			c.log.Warn("changed files of TLS cannot be used: those from before hold", "error", err)
		}
	}
	return c.conf
}

func (f *Files) changed() (at [3]time.Time) {
	for i, path := range []string{f.Cert, f.Key, f.ClientCA} {
		if info, err := os.Stat(path); err == nil {
			at[i] = info.ModTime()
		}
	}
	return at
}

// read makes the configuration of the files as they are.
func (c *certificates) read() error {
	changed := c.files.changed() // before they are read
	unusable := func(err error) error { return tga.Errorf(tga.ValidationError, "[gateway.tls]: %w", err) }
	cert, err := os.ReadFile(c.files.Cert)
	if err != nil {
		return unusable(err)
	}
	key, err := secretfile.Read(c.files.Key)
	if err != nil {
		return unusable(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return unusable(err)
	}
	// HTTP/1.1 alone: an answer that streams holds its connection, and its end is the client's.
	conf := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if c.files.ClientCA != "" {
		raw, err := os.ReadFile(c.files.ClientCA)
		if err != nil {
			return unusable(err)
		}
		conf.ClientCAs, conf.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
		if !conf.ClientCAs.AppendCertsFromPEM(raw) {
			return tga.Errorf(tga.ValidationError, "[gateway.tls]: %s has no certificate", c.files.ClientCA)
		}
	}
	c.changed, c.conf = changed, conf
	return nil
}

// namesOf are the names that a certificate says in its subjectAltName. The common name is none: what it stands for
// is no two issuers' agreement (RFC 9525 §2).
func namesOf(cert *x509.Certificate) (all []string) {
	for _, u := range cert.URIs {
		all = append(all, u.String())
	}
	return append(append(all, cert.DNSNames...), cert.EmailAddresses...)
}
