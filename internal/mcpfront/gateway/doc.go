// Package gateway is `tgad gateway`: several tool servers behind one endpoint, each with a shim of its own. It finds the
// tool server of a message, changes the name in the message, and merges lists. The conversations (package mcpfront)
// decide what is sent, recorded or in doubt.
//
// # Invariants
//
//	led    a gateway only finds the tool server of a call; the conversation   [fan.route]       TestGatewayLeadsToItsServers,
//	       with that server decides about the call, as behind a shim                            TestKilledGatewaySendsNothingTwice
//	alone  a tool server that is down does not affect the others              [fan.Run]         TestServerThatIsDownTakesNoOtherWithIt
//	own    clients of one identity cannot reach what another identity has     [hall.ServeHTTP]  TestIdentitiesAreApart
//	sent   a client's credentials go only to the tool servers that they are   [subject.Take]    TestTokensGoToTheirToolServerAlone,
//	       for; what proves its identity to the gateway goes to none                            TestKeyOfTheGatewayIsNoToken
//	tasks  the id of a task works only for clients of the same identity       [names.Tasks]     TestTaskIsOfItsIdentity,
//	                                                                                            TestKilledGatewayKeepsItsTasks
package gateway
