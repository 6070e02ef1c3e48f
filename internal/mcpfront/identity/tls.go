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

// Files are the PEM files of a gateway's TLS.
type Files struct {
	Cert, Key string
	ClientCA  string // CA certificates that sign clients' certificates; "" asks clients for none
}

// TLS makes the TLS configuration of a gateway. A client may show a certificate, which then must be valid. When a
// connection begins after a file was changed, all files are read again. While they do not fit together, the earlier ones
// stay in use, and the log says so once for each change. The error is VALIDATION_ERROR if the files cannot be used.
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
	changed [3]time.Time // modification times of the files that are in use
	told    [3]time.Time // modification times of unusable files that were logged
	conf    *tls.Config
}

// now returns the configuration for a new connection.
func (c *certificates) now() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.files.changed(); c.changed != now {
		// Perhaps only some of the files are written yet: the next connection tries again.
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

// read makes the configuration from the current files.
func (c *certificates) read() error {
	changed := c.files.changed() // before the files are read, so that no change is missed
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
	// Only HTTP/1.1: there each response has its own connection, whose end shows that the client is gone.
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

// namesOf returns the names in a certificate's subjectAltName. The common name does not count, because issuers do not
// agree on its meaning (RFC 9525 §2).
func namesOf(cert *x509.Certificate) (all []string) {
	for _, u := range cert.URIs {
		all = append(all, u.String())
	}
	return append(append(all, cert.DNSNames...), cert.EmailAddresses...)
}
