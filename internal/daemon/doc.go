// Package daemon serves a store and a runtime on a unix socket: HTTP/1.1 and JSON, as
// schemas/wire/openapi.yaml describes it.
//
// It owns who may do what. The kernel says who is at the other end of a connection, the
// configuration what that peer may do and in which namespace; a request says neither.
//
// # Invariants
//
//	peer     every request has the role of its peer, from the kernel  [Daemon.serve]       TestRolesMatrix
//	tenant   a peer reaches traces of its namespace only              [request.trace]      TestNamespacesAreClosed
//	decided  a decision is appended by a peer with the verb decide    [request.mayAppend]  TestRawAppendsFollowWhoDidTheThing
//	submits  who hands a request in is the peer, not a body           [request.requestOf]  TestWhoSubmitsDoesNotApprove
//	signed   an approval over the socket carries a token              [request.mayDecide]  TestOnlyASupervisorsSignatureApproves
//	seen     evidence is for those whose traces name it               [request.evidence]   TestEvidenceStaysInItsNamespace
//	drained  a timer's call comes to its end                          [Daemon.runTimers]   TestDrainLetsATimersCallEnd
//	detached a call goes on when its caller is gone                   [run]                TestDisconnectDoesNotStopACall
//	bytes    what is stored is spliced into answers                   client.Append        TestDocumentsAreExact
//	bounded  bodies, connections, calls, leases and streams           limits.go            TestBodyLimit
//	left     what a process let go of, no other takes up              [Daemon.takeUpOnce]  TestOnlyWhatIsLeftIsTakenUp
//	again    what one occasion could not do is done later, without another  [Daemon.doChores]    TestErasureIsFinishedByTheDaemon, TestUnfrozenStoreIsTakenUp,
//	                                                                                             TestSnapshotsAreRemovedLater, TestTrustedServerIsAskedLater, TestBrokenRecoveryIsMadeAgain
//	lacks    what a store cannot has one answer                       [Daemon.lacks]       TestStoreThatLacksSomething
//	nothing  a refused request leaves the store as it was             [Daemon.serve]       TestBadInputChangesNothing
package daemon
