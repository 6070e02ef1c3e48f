// Package postgres keeps TGA execution logs in PostgreSQL, for a fleet of processes that share
// one ledger. Like package engine it is a [runtime.Store]: entries, digests and codes are the
// same, so a reader of a log cannot tell which of the two packages wrote it.
//
// It has no consensus and no replication of its own: a commit is as durable as the database
// makes it. [Open] refuses a database that promises less durability than was asked for.
//
// # Invariants
//
//	I1 append-only  rows of the log are inserted once          triggers and grants   TestLogRowsCannotBeChanged
//	I6 one writer   an append needs the newest epoch, and a    tgad.append           TestStore, TestOneSendPerKey
//	                session that nobody has ended
//	I7 atomicity    one append is one transaction              tgad.append           TestStore
//	   key          one record of a key; the second process    tgad.append           TestOneSendPerKey
//	                to insert it reads it again
//	   outcome      the outcome of a commit without an answer  [Store.resolve]       TestUnknownCommitIsLookedAt
//	                is found out; a late one is refused
//	   durable      a commit is shown only once the standby       [database.admit]      TestWhatNoStandbyHasIsNotShown
//	                has it, unless a person cancels a wait
//	   clocks       a process whose clock is not the         [skew.err]            TestClockThatIsOffBeginsNothing
//	                database's begins no call
//	   order        numbers have no gap and never change       tgad.sequence         TestOrderHasNoGap
//	   copy         an incomplete copy is frozen               [Store.begin], [Copy] TestCopiedStoreIsTheSame
//	   place        a store is on one shard of a fleet; a      tgad.fence, acquire   TestFenceStandsInTheShard
//	                grant comes before a fence, which ends       and open_session
//	                it, or after it, and is refused
//	   move         no shard takes a store whose copy is not   [Move]                TestCopyIsCompared
//	                the same, or before old sends are over
//	   sealed       values are sealed before they are sent, and all       [ringed.keyFor],     TestSealedStore,
//	                processes seal under the same keys                    own_key              TestReplicasSealUnderOneKey
//	   erased       nothing new is sealed under a retired key; each       tgad.may_seal,       TestNoCallOfAnotherReplicaIsLost,
//	                trace is whole, or erased with its note               [Fleet.Erase]        TestErasureThatIsBrokenOff
//	   lists        lists agree with the log, in all processes,   tgad.list_more        TestListsAreAFunctionOfTheLog
//	                and no erased content finds a trace          and look_again        TestErasedNamesLeaveTheLists
//
// # How an append is made
//
// The checks are those of packages wal/chain and ledger. This process makes them on its cached
// trace and ledger record. The function tgad.append compares these with the rows, under their
// locks. If they differ, nothing is written: the process reads the rows and checks again. So both
// a refusal and an append were checked against the stored rows.
//
// # Leases
//
// A process has a session, which it renews. A lease is a row, the trace's head, that names the
// session and an epoch. A lease ends when it is released, when it is overtaken, or when its session
// ends. A session is late when its renewal is overdue by the clock of the database. A process that
// needs a trace of a late session first ends that session for good. A process that hung for too
// long finds its session ended: it appends nothing under an old lease, and takes a new session.
package postgres
