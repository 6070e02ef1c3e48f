//go:build unix

// Command payments is a small payments tool server; see package server.
package main

import (
	"os"

	"github.com/tgad/tgad/internal/payments/server"
)

func main() { os.Exit(server.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
