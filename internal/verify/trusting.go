package verify

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

// Trusting is how servers are spoken to over TLS. caFile names PEM certificates to trust in place of the
// system's; "" = none.
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
