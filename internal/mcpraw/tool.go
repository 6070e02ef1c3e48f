package mcpraw

// Tool is one entry of a server's tools/list.
type Tool struct {
	Name string
	// Definition is the whole entry, exact bytes: name, description, schemas and
	// annotations. Its digest tells whether a server changed a tool.
	Definition []byte
	// ReadOnly and Idempotent are the server's own hints (readOnlyHint, idempotentHint),
	// false if it gives none. They are suggestions and license nothing.
	ReadOnly, Idempotent bool
}
