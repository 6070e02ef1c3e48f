// Package verify has what the verifiers and probers of its sub-packages share: how to ask
// a system that is slow, busy or behind, how to make a question from a change or a call,
// how to judge an answer, and what to keep as evidence. The package itself asks nobody.
//
//	httpcheck    a resource behind a URL; whether a call ran, by its key
//	github       issue, pull request, commit
//	filecheck    a path under a root
//	gitcheck     a commit or a reference of a local repository
//	pgcheck      rows of a PostgreSQL query
//	sqlitecheck  rows of a SQLite query
//	mcpcheck     a read-only MCP tool, for a change or for a call
//
// Each has a Config with the keys of its table in the configuration file, and a New
// that refuses a wrong one with VALIDATION_ERROR and the key's name. A rule that
// cannot be evaluated never holds. A verifier never says that a change stands if nothing
// was compared.
//
// # Invariants
//
//	behind   gone, changed and "did not run" are believed only at  [NewVerifier], [NewProber]  TestSettle
//	         the end of the settling time, each time asked anew
//	undone   a deletion stands when the thing is gone              [NewVerifier]    TestDeletionStandsWhenGone
//	inside   no value climbs out of its place in a URL             [URL.Expand]     TestValuesStayInTheirPlace
//	whole    a member named twice is no answer                     [Doc.Lookup]     TestRepeatedMemberIsNoAnswer
//	bounded  evidence has at most 64 KiB, in canonical form        [Evidence]       TestEvidenceIsBounded
//	silent   no secret stands in evidence                          [Secrets.Hide]   TestSecretsAreHidden
package verify
