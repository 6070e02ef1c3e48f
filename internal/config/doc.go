// Package config reads the daemon's configuration: TOML, strict, every mistake with its
// file, line and the line's text, all of them in one error. It makes nothing of it but tables
// of the runtime; package assemble makes the rest, and links what that takes.
//
// The file is the only place from which a licence comes: what a tool server or a caller
// says about a tool can suggest one for a server that the operator marked trusted, and
// never replaces what the file says.
//
// # Invariants
//
//	closed   an unknown key is an error                      [Parse]                TestMistakesPointAtTheLine
//	attested a licence is validated for the tool's class     ledger.Licence         TestMistakesPointAtTheLine
//	asked    a licence to ask has somebody to ask            [Config.checkProbing]  TestMistakesPointAtTheLine
//	denied   no rule and no allow_all denies every request   [Config.Supervisor]    TestNothingWrittenAllowsNothing
package config
