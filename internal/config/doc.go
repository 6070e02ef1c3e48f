// Package config reads the daemon's configuration, which is strict TOML. One error lists every
// mistake, with file, line and the text of the line. The package makes only tables of the runtime
// from it; package assemble makes the rest, and links what that needs.
//
// The operator's file decides about licences. A tool server that the operator marked trusted can
// suggest one for a tool, and a program can claim one where the file permits that. Neither
// overrides what the file says.
//
// # Invariants
//
//	closed   an unknown key is an error                      [Parse]                TestMistakesPointAtTheLine
//	attested a licence is validated for the tool's class     ledger.Licence         TestMistakesPointAtTheLine
//	asked    licence probe needs a prober, or prober = none  [Config.checkProbing]  TestMistakesPointAtTheLine
//	denied   no rule and no allow_all denies every request   [Config.Supervisor]    TestNothingWrittenAllowsNothing
package config
