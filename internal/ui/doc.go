// Package ui is the web view of a store: pending approvals, calls in doubt, and what happened in each
// call. It is a client of the daemon like any other: it may do what its peer may do, and an action on a
// page makes the same request as the command line.
//
// It listens only on loopback (or at a socket file behind a [Proxy]). Any program of the machine and any
// page in the person's browser can reach loopback. So:
//
//	one person   a login link works once and sets a cookie; without it nothing is shown      [Server.login]  TestOnlyWhoHasTheLinkSeesAnything
//	no stranger  a Host that is not loopback is refused (DNS rebinding)                      [Server.ServeHTTP] TestForeignHostsAreRefused
//	no forgery   an action needs the session's token, and no other site may send it          [Server.act]    TestActionsNeedTheirToken
//	harmless     content of the log is shown as text: it cannot run, load or reorder anything [text]          TestHostileAnswersAreText
//	no other host the pages load only from this server                                        [policy]        TestPagesLoadFromHereAlone
//	same words   a trace is described as on the command line                                  [story.Of]      TestTracePage
package ui
