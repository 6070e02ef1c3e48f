// Package handshake remembers how a client has set up its tool server, and what they agreed on, so that a tool server
// that is started again can be set up in the same way.
package handshake
