// Package toolset reads the definitions of a tool server's tools: which differ from the pinned ones, which arguments go
// into headers, and what the server's hints say of effects.
package toolset
