// Package paper is what a shim leaves on its machine for others to see: the slot that it has
// among those of its tool server, the book of its permits for the shim that follows it, and
// locks that say who is there. It asks the kernel likewise whether a client still is.
package paper
