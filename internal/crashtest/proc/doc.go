// Package proc kills real processes and real disks, and checks what is left.
//
// A victim is this program again: it opens a store, lives through a plan of governed
// calls and prints what it acknowledges on a pipe. The tools it calls are in the
// oracle, a process of its own that writes each call to its journal before it acts.
// When the victim is dead, the store is opened again, recovered, and compared with the
// journal and with what was printed.
//
// # Who can be believed
//
// The oracle's journal says what was sent and what happened; the pipe says what was
// acknowledged; neither is under test. The log of the store is, and is believed about
// nothing that these two contradict.
//
// # Where the kill comes
//
//	points    before the n-th mutating call of the file system, or in the middle of a
//	          write, or around a dispatch: the victim ends itself          [killAtPoints]
//	syscalls  before the n-th system call that can matter for durability or reaches
//	          the oracle, counted over all threads: ptrace                 [killAtSyscalls]
//	double    a second kill of either kind while the first is recovered from, and a
//	          third while that is
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
