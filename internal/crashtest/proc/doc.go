// Package proc kills real processes and real disks, and checks what is left.
//
// A victim is a second process of this program: it opens a store, makes a plan of governed
// calls, and prints what it acknowledges to a pipe. Its tools are in the oracle, another
// process, which writes each call to its journal before it acts. When the victim is dead,
// the store is opened again, recovered, and compared with the journal and with the output
// on the pipe.
//
// # What is trusted
//
// The oracle's journal says what was sent and what happened. The pipe says what was
// acknowledged. Both are trusted. The log of the store is under test: where it contradicts
// one of them, the log is wrong.
//
// # Where the kill comes
//
//	points    before the n-th mutating call of the file system, or in the middle of a
//	          write, or around a dispatch: the victim ends itself          [killAtPoints]
//	syscalls  before the n-th system call that can matter for durability or reaches
//	          the oracle, counted over all threads: ptrace                 [killAtSyscalls]
//	double    a second kill of either kind during the recovery from the first, and a
//	          third during the recovery from the second
//	servers   the oracle dies at any step of a request; or both
//	stop      the victim is stopped, not killed, and goes on later
//	power     the victim is stopped at every point and the image under its file system
//	          copied: what the kernel had not yet written is lost. Its log is written
//	          through the kernel's cache                                   [cutAtPoints]
//	blocks    the same, the image under a log of block writes: any subset of those
//	          since the last flush is lost. The log is written past the cache, as
//	          everywhere else                                              [cutBlocks]
//	soak      a crowd of callers, at a point or a moment: killed, stopped or cut off [soak]
//
// # Invariants
//
// The names are those of docs/SEMANTICS.md. All are checked after every kill.
//
//	S1 one send per key under park           S2 one effect per key
//	S3 no send after a durable effect        S4 each send has its own durable attempt
//	S5 a re-send is byte-identical           S6 what was acknowledged survives
//	S7 a batch is whole                      S8 chain and checkpoints hold
//	S10 terminal is final                    L1 one recovery settles all but doubt
//	L2 no doubt without cause                L3 a second recovery changes nothing
package proc
