// Package clients tests the clients of other languages: python, a package for Python, and typescript,
// a package for Node, Bun and Deno. test_vectors/client has what each of them must do.
package clients
