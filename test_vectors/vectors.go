// Package vectors holds golden vectors: what this module reads and writes, in a form
// that an implementation in any language can check itself against. README.md in this
// folder describes the files; check.py checks the chain without any of our code.
package vectors
