// Package sealrules has the rules by which a store seals what lies beside its entries, and erases what
// they carried. It does no I/O: both kinds of store use it, so that each rule stands once.
//
// The rules of the entries themselves are in package wal/chain.
package sealrules
