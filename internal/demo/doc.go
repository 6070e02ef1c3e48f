//go:build unix

// Package demo shows what tgad is for, on real processes: a payments tool server that
// keeps its own journal, a caller, the daemon, and SIGKILL.
//
// The journal is the witness. It is written by the tool server alone, so that no claim
// rests on what tgad says about itself: charges are counted there.
//
// The demo runs the executable it is in again, under hidden verbs, for the daemon, the
// tool server and the caller without tgad. It needs no network and no other program.
package demo
