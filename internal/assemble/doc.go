// Package assemble makes what a configuration describes: the dispatcher of its tool servers, what
// the runtime asks beside the log, models, outputs of events, options of the store.
//
// It links what any file could ask for: PostgreSQL, SQLite, gRPC, MCP. Package config, which reads
// and checks the file, links none of it.
//
// # Invariants
//
//	keyed    arguments without room for the key are refused  [placer.Prepare]  TestKeyReachesTheToolWhereItWantsIt
//	         before the call is begun
//	revoked  a token of a key that the file lost is refused  [Keys.refresh]    TestKeysAreTheFiles
//	checked  a file that [Parse] accepts is one that can be  [builder]         TestMistakesPointAtTheLine
//	         built, but for files that are read at the start
package assemble
