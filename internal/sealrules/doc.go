// Package sealrules has the rules by which a store seals the values beside its entries, and erases the
// contents of its entries. It does no I/O. Both kinds of store use it, so each rule is written once.
//
// The rules of the entries themselves are in package wal/chain.
package sealrules
