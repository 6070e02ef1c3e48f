// Package checkpoint signs how far the tree of a store has grown, keeps the signed checkpoints, and
// copies them to places outside the store.
//
// A checkpoint is a signed note (C2SP signed-note) with the body of C2SP tlog-checkpoint: an
// origin, the number of leaves, the head of the tree in base64. The origin names the store:
// "tgad/" and its id, unless a configuration says otherwise. Whoever holds an old checkpoint, and
// trusts the key that signed it, can tell whether a store still has what it had then.
//
// # Keys
//
// A key is Ed25519, in the text form of signed-note. It is in a file outside the store that only its
// owner can read, or in a program that signs for the store ([Remote]). A key is replaced by a
// hand-over: a note that names the new key and the head at which it takes over, signed by the old
// key and by the new one. A reader who trusts the old key then trusts the new one ([Keys.Follow]).
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
//	signed     every byte used of a checkpoint was signed by a trusted key            [Keys.Open]   TestCheckpointIsBelievedOnlyWhole
//	given up   a key that was handed over signs no larger tree and hands over no more [Keys.Open]   TestHandOver
//	kept       kept notes are there after a crash; a torn end is dropped              [File.Append] TestKeptCheckpointsSurviveACrash
//	not lost   a damaged file is refused and not overwritten                          [OpenFile]    TestDamagedFileIsRefused
//	succeeded  a key is followed only through a hand-over that both keys signed       [Keys.Follow] TestHandOver
//	outside    a place returns what it was given last, or an error                    [Target]      TestTargets
//	seen       a witness gets proofs, its answer counts only with its signature, and  [Witness]     TestWitness
//	           its refusal shows that a store has fewer leaves than it has seen
package checkpoint
