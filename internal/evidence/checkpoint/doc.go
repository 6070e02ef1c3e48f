// Package checkpoint says, signed, how far the tree of a store has grown, keeps what it said, and
// carries it to places outside the store.
//
// A checkpoint is a signed note (C2SP signed-note) with the body of C2SP tlog-checkpoint: an
// origin, the number of leaves, the head of the tree in base64. The origin names the store:
// "tgad/" and its id, unless a configuration says otherwise. Whoever holds an old checkpoint, and
// trusts the key that signed it, can tell whether a store still has what it had then.
//
// # Keys
//
// A key is Ed25519, in the text form of signed-note, in a file that only its owner reads and that
// lies outside the store; or a program that signs for it holds it ([Remote]). A key is replaced by
// a hand-over: a note that names the new key and the head at which it takes over, signed by the
// old key and by the new one. Who trusts the old key follows it to the new one ([Keys.Follow]).
//
// # Witnesses
//
// A witness remembers the newest checkpoint that it saw of an origin and signs a newer one only
// with a proof that it grew from that (C2SP tlog-witness). Its signature says when (C2SP
// tlog-cosignature). Which witnesses are asked, and how many must have signed, is a policy
// (formats/witness).
//
// # Invariants
//
//	signed     what is believed of a checkpoint was signed by a key that is trusted   [Keys.Open]   TestCheckpointIsBelievedOnlyWhole
//	given up   who handed a key over speaks of no larger tree, and gives it to nobody [Keys.Open]   TestHandOver
//	kept       what was kept is there after a crash; a torn end is dropped            [File.Append] TestKeptCheckpointsSurviveACrash
//	not lost   of a damaged file nothing is written over                              [OpenFile]    TestDamagedFileIsRefused
//	succeeded  a key is followed only through a hand-over that both keys signed       [Keys.Follow] TestHandOver
//	outside    a place returns what it was given last, or says why it cannot          [Target]      TestTargets
//	seen       a witness is given proofs, is believed only with its signature, and    [Witness]     TestWitness
//	           tells of a store that has fewer leaves than it has seen
package checkpoint
