//go:build !unix

package cli

import (
	goruntime "runtime"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/schemas/tga"
)

// MCP makes the verb mcp, which says here that it does not run.
func MCP(*Streams, *string) *cobra.Command {
	return &cobra.Command{
		Use: "mcp", Short: "Run an MCP server behind tgad, for an MCP client (not on this system)", DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return tga.Errorf(tga.ValidationError, "tgad mcp does not run on %s: run it on Linux", goruntime.GOOS)
		},
	}
}
