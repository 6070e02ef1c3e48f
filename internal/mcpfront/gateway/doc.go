// Package gateway is `tgad gateway`: several tool servers behind one endpoint, each with a shim of its own. It finds the
// tool server of a message, changes the name in it and puts lists together. What is sent, recorded or in doubt the
// conversations decide (package mcpfront).
//
// # Invariants
//
//	led    a gateway finds the tool server of a call; what becomes of the     [fan.route]       TestGatewayLeadsToItsServers,
//	       call is that one's conversation's to decide, as behind a shim                        TestKilledGatewaySendsNothingTwice
//	alone  one tool server of a gateway does not take another with it         [fan.Run]         TestServerThatIsDownTakesNoOtherWithIt
//	own    what a client of a gateway has is its identity's alone             [hall.ServeHTTP]  TestIdentitiesAreApart
//	sent   credentials of a client go to the tool servers of one party, and   [subject.Take]    TestTokensGoToTheirToolServerAlone,
//	       what tells its identity goes to none                                                 TestKeyOfTheGatewayIsNoToken
//	tasks  an id of a task leads the clients of one identity to one task      [names.Tasks]     TestTaskIsOfItsIdentity,
//	                                                                                            TestKilledGatewayKeepsItsTasks
package gateway
