package toolcall

// Tool is what the operator says about how one tool's calls go through the shim. Class
// and licence are the log's affair.
type Tool struct {
	// Ungoverned passes the tool's calls untraced (log = "none").
	Ungoverned bool
	// KeyPointer is a JSON Pointer into the arguments: what stands there is the key.
	KeyPointer string
	// KeyArgument is a JSON Pointer to a member that the key is copied to when the caller
	// left it out; KeyMeta a member of `_meta` that it is copied to as well.
	KeyArgument string
	KeyMeta     string
	// Block refuses calls of the tool once its definition differs from the one that was
	// pinned.
	Block bool
}
