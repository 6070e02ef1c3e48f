// Package entry is where clients of an MCP front come in: on stdin and stdout, or over streamable HTTP, where
// each has a session or shares one. What a client's way leads to is a [Party], and it knows nothing of tools
// and of the log.
//
// # Invariants
//
//	compared  what a client's headers say is what its body says               [Front.post]    TestHeadersAreThoseOfTheBody, TestArgumentHeadersAreThoseOfTheBody
//	apart     who shares a tool server does not cancel, hold up or end        [session.post]  TestClientsDoNotCancelEachOther,
//	          what another is at                                                              TestClientThatStopsReading
//	there     a client over HTTP is seen to be gone the moment that it is     [Front.Reap]    TestClosedStreamIsSeenBeforeTheServerIsTold
package entry
