// Package wire holds the description of the daemon's API for readers in any language.
// The Go messages are in package runtime/client; a test of internal/daemon holds the
// description to the running daemon.
package wire

import _ "embed"

// OpenAPI is the API in OpenAPI 3.1.
//
//go:embed openapi.yaml
var OpenAPI []byte
