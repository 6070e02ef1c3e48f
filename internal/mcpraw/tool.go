package mcpraw

// Tool is one entry of a server's tools/list.
type Tool struct {
	Name string
	// Definition is the whole entry, exact bytes: name, description, schemas and
	// annotations. Its digest tells whether a server changed a tool.
	Definition []byte
	// ReadOnly and Idempotent are the server's own hints (readOnlyHint,
	// idempotentHint), false where it gives none. They suggest, they license nothing.
	ReadOnly, Idempotent bool
}
