// Package witness is a witness of C2SP tlog-witness. It remembers, for each store that it was told
// of, the newest checkpoint that it signed, and signs another one only if that one's tree grew from
// it. Somebody else than the owner of the store runs it, on another machine.
//
// A request is POST /add-checkpoint with the size that the sender believes the witness has, the
// proof that the tree grew from there, and the signed checkpoint. The answers are in the table of
// [Witness.ServeHTTP].
//
// # Keys
//
// The key of a witness is Ed25519 of the kind cosignature/v1 (C2SP tlog-cosignature): a note's key
// with algorithm 4. The kind stands in the secret key as well, so that neither a store signs with
// the key of a witness nor a witness with that of a store ([ParseKey]).
//
// # Invariants
//
//	one history  what is signed grew from everything that was signed before   [judge]        TestAnswers
//	durable      a cosignature is returned once its checkpoint is durable     [State.Raise]  TestCrashNeverForgetsWhatWasSigned
//	not lost     a damaged or missing state is not begun anew                 [Open]         TestDamagedStateIsRefused
//	alone        one process at a time has the state                          [Open]         TestStateIsOfOneProcess
//	in order     two requests of one origin are judged one after the other    [State.Raise]  TestConcurrentRequests
package witness
