// Package clients holds a governed tool call over the daemon's socket in three
// languages, without a library: call.sh (curl), call.py (Python), call.mjs (Node).
package clients
