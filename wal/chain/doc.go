// Package chain defines what makes entries a valid log: the frame they are stored in,
// the hash chain, the sequence, the legality of each transition, and replay.
//
// It is pure. Package engine uses it to check and link what it is about to write, and
// package runtime to fold what it has read. So the two cannot disagree about what a
// trace's log means.
//
// # Invariants
//
//	I1 sequence    entry n of a trace is number n, from 1        [Trace.Apply]  engine.DB.Check  TestReplayNamesTheBadEntry
//	I5 chain       entry n names the digest of entry n-1         [Trace.Link]   [Trace.Apply]    FuzzReplayTamper
//	   machine     from_state is the current state, edge legal   [Trace.Apply]  [Replay]         TestTransitionVectors
//	   links       an artifact names the one before, id+digest   [Trace.Apply]  [Replay]         TestArtifactLinks
//	   documents   a stored document has the digest bound        [Trace.Apply]  [DecodeFrame]    TestDocumentsAreBound
//	   notes       a note names the one before and a head        [Trace.LinkNote] [Trace.ApplyNote] TestReplayNamesTheBadNote
//	   frame       header and canonical bytes say the same       [DecodeFrame]  [DecodeFrame]    FuzzDecodeFrame
//	   unchanged   a refused entry leaves the trace as it was    [Trace.Apply]                   TestRefusedEntryChangesNothing
package chain
