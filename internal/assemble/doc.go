// Package assemble makes what a configuration describes: the dispatcher of its tool servers, the
// verifiers, probers and keys that the runtime uses, models, outputs of events, and options of the
// store.
//
// It links everything that a configuration could need: PostgreSQL, SQLite, gRPC, MCP. Package
// config, which reads and checks the file, links none of these.
//
// # Invariants
//
//	keyed    a call whose arguments have no room for the key  [placer.Check]   TestKeyReachesTheToolWhereItWantsIt
//	         is refused before it begins
//	revoked  a token is refused after its key was removed     [Keys.refresh]   TestKeysAreTheFiles
//	         from the file
//	checked  what [Parse] accepts can be built, if the other  [builder]        TestMistakesPointAtTheLine
//	         files that it names can be read at the start
package assemble
