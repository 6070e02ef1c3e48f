//go:build unix

// Package demo shows what tgad is for, on real processes: a payments tool server that
// keeps its own journal, a caller, the daemon, and SIGKILL.
//
// The journal is the witness: charges are counted there. Only the tool server writes it, so
// no claim depends on what tgad says about itself.
//
// The demo starts tgad as the daemon, and its own executable again, under hidden verbs, as
// the tool server and the caller without tgad. It needs no network and no other program.
package demo
