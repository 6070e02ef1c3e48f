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
// own: calls run side by side, and a call that fails drops its branch. If another call
// has changed what a call read or wrote, that call is refused with STATE_CONFLICT when it
// would commit. A restore never overwrites what another call committed. A plain
// [Snapshotter], such as a directory that child processes write into, can't tell which
// call made a write. So calls that use it run one after another: they take turns.
//
// # Durability
//
// With a store, both boundaries of a call commit with its trace's own entries: the
// snapshot before the call with EXECUTING, the state after it with the effect. Between
// these two batches the record of the call is open. A call whose record is open counts
// as not happened: [Open] restores the resources that it held. Snapshots are trees of
// content-addressed nodes, so each snapshot costs only what changed. The head of a state
// keeps the [Place] of each resource outside the process, so a program that has none of
// the original program's types can still roll the state back.
//
// # Limits
//
// What a tool did outside the working state can't be undone: a [Plan] lists it. Calls of
// remote executors are not transactions, because they do not pass through a dispatcher.
// A call in doubt is undone when its dispatcher gives up, or when the state is opened
// after a crash. If a person later says that the call ran, its changes do not come back.
// Changes that other programs make in a directory between two calls belong to the state
// before the second call. Changes that they make during a call count as the call's own.
// The commits of a state and its forks become durable one at a time. LOG slices, to
// which every call appends, and CACHE slices, which can be made again, are not checked
// for conflicts.
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
