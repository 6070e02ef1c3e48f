// Package tree keeps the Merkle tree of a store: one leaf for each append, in the order of the
// log. It is the tree of RFC 6962, so its head commits to every append. It gives two short proofs:
// that an append is in the tree, and that the tree grew from an older one without a change.
//
// # Leaf
//
// The bytes of a leaf are its index, and then what the log records of its append. All integers are
// big-endian, times are milliseconds since 1970:
//
//	index 8 · version 1 · trace 16 · first seq 8 · entries 2 · first note 4 · notes 2 ·
//	digest of the trace's last entry 32 · digest of its last note 32 · newest commit time 8 · newest ts 8
//
// The index counts from 1; the leaf's number in the tree is one less. The hash of a leaf is
// SHA-256 of a zero byte and these 121 bytes, that of an inner node SHA-256 of 0x01 and its two
// children (RFC 6962 §2.1).
//
// # On disk
//
// The tree is a function of the log: it is written after a commit, never before it, and can be made
// again from the log at any time. It is in two files in the directory evidence of the store.
//
//	hashes  magic 8 · store 16 · zeros 8, then hashes of 32 bytes, in the order in which they
//	        become known (tlog.StoredHashIndex)
//	mark    magic 8 · store 16 · leaves 8 · head 32 · CRC-32C 4
//
// Appends to hashes are not synced. [Tree.Mark], which is called seldom, syncs them and then replaces
// the mark. After a crash the hashes past the mark are not trusted: they are made again from the log.
//
// # Concurrency
//
// One goroutine appends. Any number of others read. A lock protects the move of hashes from memory to
// the file, and a hash never changes.
//
// # Invariants
//
//	same      the head is that of RFC 6962 over the same leaves      [Tree.Append]  TestHeadsAreThoseOfRFC6962
//	kept      after a crash the tree has all that was marked, or it  [Open]         TestCrashAnywhere
//	          is empty and made again
//	bound     a tree of another store, or of another log, is made    [Open]         TestForeignTreeIsMadeAgain
//	          again from the log
//	apart     reads of older leaves stay right while the tree grows  [Tree.Append]  TestReadersBesideTheAppender
//	proved    every leaf and every older head has a proof            [Tree.Prove]   TestEveryProofHolds
package tree
