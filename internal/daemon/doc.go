// Package daemon serves a store and a runtime on a unix socket: HTTP/1.1 and JSON, as
// schemas/wire/openapi.yaml describes it.
//
// It owns who may do what. The kernel identifies the peer at the other end of a connection. The
// configuration says what that peer may do, and in which namespace. A request decides neither.
//
// # Invariants
//
//	peer     each request has the role of the uid that the kernel reports   [Daemon.admit]              TestRolesMatrix
//	tenant   a peer reaches only traces of its namespace                    [request.trace]             TestNamespacesAreClosed
//	decided  only a peer with the verb decide appends a decision            [submitting.mayAppendRaw]   TestRawAppendsFollowWhoDidTheThing
//	submits  the submitter of a request is the peer, whatever the body says [request.requestOf]         TestWhoSubmitsDoesNotApprove
//	signed   a raw approval carries a remote supervisor's signature         [submitting.mayDecideRaw]   TestOnlyASupervisorsSignatureApproves, TestAppendCannotSlipADecisionPastItsRequest
//	seen     a peer reads evidence only if one of its traces names it       [request.evidence]          TestEvidenceStaysInItsNamespace
//	drained  a draining daemon lets the call of a timer finish              [Daemon.runTimers]          TestDrainLetsATimersCallEnd
//	detached a call continues after its caller has disconnected             [run]                       TestDisconnectDoesNotStopACall
//	bytes    answers contain stored JSON byte for byte                      wire.Append                 TestDocumentsAreExact
//	bounded  bodies, connections, calls, leases and streams have limits     limits.go                   TestBodyLimit
//	left     no daemon takes up a trace that another process let go of      [Daemon.takeUpOnce]         TestOnlyWhatIsLeftIsTakenUp
//	again    work that failed once is tried again without a new trigger     [Daemon.doChores]           TestErasureIsFinishedByTheDaemon, TestUnfrozenStoreIsTakenUp,
//	                                                                                                    TestSnapshotsAreRemovedLater, TestTrustedServerIsAskedLater, TestBrokenRecoveryIsMadeAgain
//	lacks    every request for what the store cannot do gets one refusal    [Daemon.lacks]              TestStoreThatLacksSomething
//	nothing  a refused request leaves the store as it was                   [Daemon.serve]              TestBadInputChangesNothing
package daemon
