// Package toolset is what the definitions of a tool server's tools say: which differ from the ones that were pinned,
// which arguments go into headers, what the server says of effects.
package toolset
