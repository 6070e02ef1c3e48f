// Package tga holds the TGA v1 contracts: the types a log is made of, their one
// canonical form, their digests, the transition table and the error codes.
//
// It is pure: no I/O, no clock, no randomness. Everything else in the module
// builds on it. A log can be checked with this package and package wal/chain alone.
//
// # Invariants
//
//	one form       the bytes hashed are the canonical bytes stored     [Canonicalize], [Artifact.Seal]  FuzzCanonicalAgreesWithJCS, FuzzEncodersAgreeWithJCS
//	no lossy input a number that canonical form would change, and      [Gate]                           TestUnsafeNumbersAreRefused
//	               a repeated member, are refused
//	closed         a member is in the table of its object or refused   [DecodeArtifact]                 TestUnknownMembersAreRefused, TestSchemasAgreeWithDecoders
//	read back      what is minted has passed the decoder               [Artifact.Seal]                  TestSealRefusesWhatWouldBreakOut
//	stored bytes   are hashed as they lie there, never encoded again   [DecodeStoredArtifact]           TestStoredBytesAreCheckedWhole
//	eight edges    the machine has the edges of Talos 9.3, no other    [Next]                           TestTransitionGrid
//	one table      every code has a status, a meaning and a remedy     [Codes]                          TestEveryCodeIsExplained
//
// The fuzz targets compare the canonicaliser here with github.com/gowebpki/jcs. A build with
// the tag jcsagrees does so on every call.
package tga
