// Package handshake is what a client has said to its tool server to set it up, and what was agreed: a tool server that
// is started again is told the same.
package handshake
