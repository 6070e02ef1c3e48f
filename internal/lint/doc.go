// Package lint holds tests about the repository itself: the import diagram of
// docs/ARCHITECTURE.md, and documents that are made from tables of the code.
package lint
