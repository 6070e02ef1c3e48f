// Package entry lets the clients of an MCP front in: on stdin and stdout, or over streamable HTTP, where each client
// has a session of its own or shares one. It passes a client's messages to a [Party], and knows neither tools nor
// the log.
//
// # Invariants
//
//	compared  a request whose headers differ from its body is refused         [Front.post]    TestHeadersAreThoseOfTheBody, TestArgumentHeadersAreThoseOfTheBody
//	apart     a client that shares a tool server does not cancel, hold up     [session.post]  TestClientsDoNotCancelEachOther,
//	          or end the requests of another                                                  TestClientThatStopsReading
//	there     before the log is asked, clients that have closed their         [Front.Reap]    TestClosedStreamIsSeenBeforeTheServerIsTold
//	          streams are seen to be gone
package entry
