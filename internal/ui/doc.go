// Package ui is the web view of a store: who is asked what, what is in doubt, and what happened in each
// call. It is a client of the daemon like any other: whoever runs it may do what its peer may do, and an
// action is the request that the command line makes.
//
// It listens on loopback alone, where any program of the machine and any page in the person's browser
// can reach it. So:
//
//	one person   a login link that works once, then a cookie; without it nothing is said    [Server.login]  TestOnlyWhoHasTheLinkSeesAnything
//	no stranger  a Host that is not loopback is refused (DNS rebinding)                      [Server.ServeHTTP] TestForeignHostsAreRefused
//	no forgery   an action needs the session's token, and no other site may send it          [Server.act]    TestActionsNeedTheirToken
//	harmless     what a log holds is text: nothing of it runs, is fetched or turns the text   [text]          TestHostileAnswersAreText
//	no other host the pages load from here alone                                              [policy]        TestPagesLoadFromHereAlone
//	same words   a trace is told as on the command line                                       [story.Of]      TestTracePage
package ui
