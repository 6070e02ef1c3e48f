package toolcall

// Tool is the operator's configuration of how one tool's calls go through the shim. Class and
// licence are configured at the log.
type Tool struct {
	// Ungoverned passes the tool's calls untraced (log = "none").
	Ungoverned bool
	// KeyPointer is a JSON Pointer to the argument whose value is the key.
	KeyPointer string
	// KeyArgument is a JSON Pointer to an argument that the key is copied to if the caller left
	// it out. KeyMeta is a member of `_meta` that the key is copied to as well.
	KeyArgument string
	KeyMeta     string
	// Block refuses calls of the tool if its definition differs from the pinned one.
	Block bool
}
