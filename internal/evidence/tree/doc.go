// Package tree keeps the Merkle tree of a store: one leaf for each append, in the order of the
// log. It is the tree of RFC 6962, so a head of it commits to every append before it, and two
// short proofs follow from it: that an append is in it, and that it grew from an older head
// without a change.
//
// # Leaf
//
// The bytes of a leaf are what the log records of an append, behind its index. All integers are
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
// The tree is a function of the log: it is written behind it, never before a commit, and can be
// made again from it at any time. Two files in the directory evidence of the store hold it.
//
//	hashes  magic 8 · store 16 · zeros 8, then hashes of 32 bytes, in the order in which they
//	        become known (tlog.StoredHashIndex)
//	mark    magic 8 · store 16 · leaves 8 · head 32 · CRC-32C 4
//
// Appends to hashes are not synced. [Tree.Mark] syncs them and then replaces the mark; it is
// called seldom. What lies behind the mark is not believed after a crash: it is made again from
// the log.
//
// # Concurrency
//
// One goroutine appends. Any number of others read: a lock orders what is still in memory with
// what is in the file, and a hash never changes once it is there.
//
// # Invariants
//
//	same      the head is that of RFC 6962 over the same leaves      [Tree.Append]  TestHeadsAreThoseOfRFC6962
//	kept      what was marked is there after a crash, or the tree    [Open]         TestCrashAnywhere
//	          says that it must be made again
//	bound     a tree of another store, or of another log, is not     [Open]         TestForeignTreeIsMadeAgain
//	          believed
//	apart     who reads while the tree grows gets what was there     [Tree.Append]  TestReadersBesideTheAppender
//	proved    every leaf and every older head has a proof            [Tree.Prove]   TestEveryProofHolds
package tree
