// Package workstate makes every tool call a transaction over what an agent holds: the
// typed slices of its session and the resources beside it, such as files, budget and
// databases. A call that succeeds leaves all its changes, a call that fails leaves none,
// and the state can go back to before any recent call.
//
// A [State] is the single root. [Transact] puts it around a [runtime.Dispatcher]; the
// loop of package runtime knows nothing of it. A tool finds its call's own view with
// [FromContext].
//
// Package runtime/workstate shows other modules what they need of it.
//
// # Parts
//
// Parts of two kinds hold working state. A [Brancher] gives each call a branch of its
// own: calls run side by side, a call that fails drops its branch, and one whose reads
// or writes were changed by another since it began is refused with STATE_CONFLICT when
// it would commit. What another call committed is never restored over. A plain
// [Snapshotter], such as a directory that child processes write into, can't tell whose
// write is whose: calls that use it run one after another.
//
// # Durability
//
// With a store, both boundaries of a call commit with its trace's own entries: the
// snapshot before it with EXECUTING, the state after it with the effect. The record of a
// call is open from the one batch to the other, and a call whose record is open did not
// happen: [Open] restores what it held. Snapshots are trees of content-addressed nodes,
// so each costs what changed. The head of a state keeps the [Place] of each resource
// outside the process: who has none of the program's types can roll it back all the same.
//
// # Limits
//
// What a tool did outside the working state can't be undone: a [Plan] lists it. Calls of
// remote executors are not transactions, for nothing of theirs passes through a
// dispatcher. A call in doubt is undone when its dispatcher gives up, or when the state
// is opened after a crash; that a person later says it ran does not bring its changes
// back. What others change in a directory between two calls is part of what stood before
// the second; what they change during a call is taken for the call's. The commits of a
// state and its forks become durable one at a time. LOG slices, to which every call
// appends, and CACHE slices, which can be made again, are not looked at for conflicts.
//
// # Invariants
//
//	whole    a failed call changes LOG slices alone                [Transact]       TestFailingToolLeavesNoTrace
//	foreign  no restore over another call's commit                 [Branch]         TestOverlappingCallsKeepEachOthersCommits
//	serial   committed calls are equal to some serial order        [Branch]         TestRandomProgramsAgreeWithTheModel
//	agree    after a crash the files are before or after the call, [Open]           TestKilledCallIsBeforeOrAfter
//	         as the trace's effect says
//	shown    nobody sees a commit that is not durable              [State.Store]    TestUndurableCommitIsNotShown
//	kept     collection drops nothing that is referred to          [State.Collect]  TestCollectKeepsWhatIsReferredTo
//	bare     a rollback needs none of the program's types          [State.Places]   TestRollbackNeedsNoTypes
package workstate
