// Package witness is a witness of C2SP tlog-witness. For each store that it is configured for, it
// remembers the newest checkpoint that it signed, and signs another one only if the tree of that
// grew from it. Somebody other than the owner of the store runs it, on another machine.
//
// A request is POST /add-checkpoint with the size of the newest checkpoint that the witness has, as
// far as the sender knows, the proof that the tree grew from there, and the signed checkpoint. The
// answers are in the table of [Witness.ServeHTTP].
//
// # Keys
//
// The key of a witness is Ed25519 of the kind cosignature/v1 (C2SP tlog-cosignature): a note's key
// with algorithm 4. The secret key contains the kind too, so that no store can sign with the key of a
// witness, and no witness with the key of a store ([ParseKey]).
//
// # Invariants
//
//	one history  a signed tree grew from every tree that was signed before    [judge]        TestAnswers
//	durable      a cosignature is returned once its checkpoint is durable     [State.Raise]  TestCrashNeverForgetsWhatWasSigned
//	not lost     a damaged or missing state is not replaced by an empty one   [Open]         TestDamagedStateIsRefused
//	alone        one process at a time has the state                          [Open]         TestStateIsOfOneProcess
//	in order     two requests of one origin are judged one after the other    [State.Raise]  TestConcurrentRequests
package witness
