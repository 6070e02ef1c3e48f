// Package clients tests the clients in other languages: python, a package for Python, and typescript,
// a package for Node, Bun and Deno. test_vectors/client says what every client must do.
package clients
