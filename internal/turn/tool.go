package turn

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// Tool is a resolved tool (OSSA 0.2.9 §1 phase 3).
type Tool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	SchemaDigest tga.Digest      `json:"schema_digest"` // of the schema's canonical form
	Source       ToolSource      `json:"source"`
	Transport    Transport       `json:"transport"`
	Server       string          `json:"server"` // tool_server and tool_name of its calls
	Remote       string          `json:"remote"`
	Timeout      time.Duration   `json:"timeout"`
	Retry        RetryPolicy     `json:"retry_policy"`
	Breaker      BreakerSpec     `json:"breaker"`
	Parallel     bool            `json:"parallel"`
	Risk         string          `json:"risk,omitempty"`
	Approve      bool            `json:"approve,omitempty"`
	Delegation   *Delegation     `json:"delegation,omitempty"`
	Fallback     json.RawMessage `json:"fallback,omitempty"`
}

// SourceType says where a tool was found.
type SourceType string

// The sources.
const (
	FromManifest   SourceType = "manifest"
	FromMCP        SourceType = "mcp"
	FromDelegation SourceType = "delegation"
)

// ToolSource says where a tool was found.
type ToolSource struct {
	Type       SourceType `json:"type"`
	Index      int        `json:"tool_index"`           // in the manifest's list
	ServerURI  string     `json:"server_uri,omitempty"` // of FromMCP
	Capability string     `json:"capability,omitempty"`
	AgentID    string     `json:"agent_id,omitempty"` // of FromDelegation
}

// Warning says why something that a manifest names is left out, or that it has changed.
type Warning struct {
	Tool   string   `json:"tool"`
	Code   tga.Code `json:"code"`
	Reason string   `json:"reason"`
}

// Resolver finds an agent's tools. Resolve leaves out tools that cannot be reached or used, with
// a warning for each. It fails only if ctx ends.
type Resolver interface {
	Resolve(ctx context.Context, agent *Agent) ([]Tool, []Warning, error)
	// Validate checks the arguments of a call against a resolved tool's schema: SCHEMA_VIOLATION
	// with a JSON Pointer to the place. args is a JSON object.
	Validate(tool *Tool, args []byte) error
}
