// Package paper has the files by which shims on one machine see each other: the slot of a shim
// among the shims of its tool server, the book of its permits for the next shim in that slot, and
// locks that show which processes and clients live. It also asks the kernel whether a client has
// closed its end.
package paper
