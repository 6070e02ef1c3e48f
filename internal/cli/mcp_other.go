//go:build !unix

package cli

import (
	goruntime "runtime"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/schemas/tga"
)

// MCP makes the verb mcp, which says here that it does not run.
func MCP(*Streams, *string) *cobra.Command {
	return notHere("mcp", "Run an MCP server behind tgad, for an MCP client")
}

// Gateway makes the verb gateway, which says here that it does not run.
func Gateway(*Streams, *string) *cobra.Command {
	return notHere("gateway", "Run several MCP servers behind one endpoint")
}

func notHere(verb, short string) *cobra.Command {
	return &cobra.Command{
		Use: verb, Short: short + " (not on this system)", DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return tga.Errorf(tga.ValidationError, "tgad %s does not run on %s: run it on Linux", verb, goruntime.GOOS)
		},
	}
}
