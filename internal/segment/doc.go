// Package segment is the format of sealed segments: archive files of finished traces.
// They are compressed with zstd, can be read without a store, and can be verified without
// trust in what they say of themselves. The format is no second write path: a store writes
// a segment from traces that it already holds, and removes the traces only afterwards.
//
// # Format, version 2
//
// Integers are big-endian. A segment is a header, blocks, a footer and a trailer.
//
//	header     magic "TGADSEG\n" [8]   version [4] = 2   flags [4] = 0
//	blocks     one after another, any number
//	list       what a list of traces shows of each trace
//	footer     the places of blocks, list and traces
//	trailer    the place of the footer, and the digest of the file
//
//	block
//	     0  "BLOK" [4]      traces [4], at least 1
//	     8  stored bytes [8]
//	    16  the stored bytes: one zstd frame of the trace records
//
//	trace record
//	     0  trace id [16]
//	    16  entries [4]     notes [4]
//	    24  per entry: frame length [4], spill length [8], frame, spill
//	        per note:  frame length [4], frame
//
//	list
//	     0  "LIST" [4]      traces [4]
//	     8  stored bytes [8]
//	    16  the stored bytes: one zstd frame, nothing where there are no traces. In the
//	        order of trace ids, per trace: ts of the newest entry [8], deadline [8] or 0,
//	        tool call id [16] or zeros; then state, namespace, tool server, tool and
//	        idempotency key, each as length [4], bytes
//
//	footer
//	     0  "FOOT" [4]      blocks [4]
//	     8  traces [4]      0 [4]
//	    16  per block: offset of the block [8], stored bytes [8],
//	        SHA-256 of the stored bytes [32]
//	        of the list: the same three
//	        per trace, in the order of trace ids: trace id [16], block [4],
//	        notes [4], first seq [8], last seq [8], head digest [32],
//	        digest of the last note [32] (zeros where there is none)
//
//	trailer
//	     0  offset of the footer [8]
//	     8  length of the footer [8]
//	    16  SHA-256 of the footer [32]
//	    48  SHA-256 of the file up to here [32]
//	    80  magic "TGADEND\n" [8]
//
// Entry and note frames are those of package wal/chain, byte for byte as the store has
// them. The spill follows its frame; in a store it is in chunks. A block ends with the
// first trace that brings its records to [BlockTarget] bytes.
//
// # Trust
//
// [Open] reads header, footer and trailer and checks the footer's digest;
// [Reader.Trace] checks the digest of the one block it reads and replays the trace.
// [Verify] trusts none of this: it reads the blocks in the order of the file, recomputes
// every chain with [chain.Replay], builds its own list and footer from what it found, and
// only then compares those, and the digest of the file, with what is stored. [Reader.List]
// checks the list's digest. It does not check that the list agrees with the traces.
//
// # Invariants
//
//	finished  only a trace in a terminal state is written   [Writer.Add]          TestOnlyFinishedTracesAreSealed
//	whole     a changed, missing or added byte is found     [Verify]              TestEveryFlipIsDetected, TestEveryTruncationIsDetected
//	distrust  a footer or list with false content is found  [Verify]              TestLyingFooterIsDetected, TestForgedListsAreRefused
//	shown     a list of traces unpacks no block             [Reader.List]         TestReadsOfASegment
//	bounded   memory for one trace and the index is enough  [MaxTrace]            TestBombIsRefused
package segment
