package verify

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

// Trusting returns the TLS configuration for connections to servers. caFile names PEM certificates to
// trust in place of the system's; "" = the system's.
func Trusting(caFile string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return config, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, Invalid("ca_file", "%w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, Invalid("ca_file", "%s holds no certificate in PEM", caFile)
	}
	return config, nil
}
