// Package mcpcheck asks with a read-only MCP tool whether a change stands ([New]) and
// whether a call ran ([NewProber]). The tool may be of the server that made the change,
// or of another. It is called through a [runtime.Dispatcher], as *mcp.Server is one:
// the package owns no transport.
//
// # Verifier
//
//	[[verifier]]
//	resource_type = "ticket"
//	type          = "mcp"
//	server        = "tickets"             # id of a [[server]]
//	tool          = "get_ticket"          # attested to change nothing
//	answer        = "result"              # what rules look at; or "text": the first text of the content, as JSON
//	ignore        = []                    # of "etag" and "version"
//	timeout, tries, delay, max_delay, settle, settle_every as in package httpcheck
//	  [verifier.arguments]
//	  id      = "resource_id"             # member of the change
//	  version = "version?"                # ? = left out where the change has none
//	  verbose = "=true"                   # = and a constant in JSON
//	  [[verifier.check]]                  # each must hold
//	  pointer = "/structuredContent/version"
//	  field   = "version"
//	  [[verifier.gone]]                   # one holds: it is not there
//	  failed  = true                      # holds for an error of the tool; else for a result
//	  check   = [{ pointer = "/content/0/text", contains = "not found" }]
//
// # Prober
//
//	[[prober]]
//	server      = "payments"              # of the calls in doubt
//	tool        = "charge"
//	type        = "mcp"
//	ask_server  = "payments"              # of the tool that is asked; server
//	ask_tool    = "find_charge"
//	answer      = "result"
//	fences      = false                   # asking burns or claims the key
//	timeout, tries, delay, max_delay, settle, settle_every as in package httpcheck
//	  [prober.arguments]
//	  reference = "key"                   # key, server, tool, trace_id, tool_call_id
//	  customer  = "/customer/id"          # JSON Pointer into the call's arguments
//	  [[prober.ran]]                      # one must hold
//	  check  = [{ pointer = "/structuredContent/key", field = "key" }]
//	  [[prober.not_ran]]
//	  check  = [{ pointer = "/structuredContent/found", equals = "false" }]
//	  [prober.reply]
//	  result  = "/structuredContent/response"   # JSON Pointer; "" = the whole answer
//	  summary = "/structuredContent/message"
//	    [[prober.reply.failure]]
//	    check = [{ pointer = "/structuredContent/state", equals = "failed" }]
//
// For an error of the tool, or a JSON-RPC error, rules look at the whole result, whatever
// the key answer says. An error that no rule fits means cannot tell; so does an answer
// over 1 MiB. A question that did not reach the server, or got no answer, is asked again.
//
// # Invariants
//
//	closed  what no rule says cannot be told                  [look.judge], [inquiry.judge]  TestFindings, TestAnswers
//	own     a question never has the key of a call: a server  [question.ask]                 TestQuestionHasAKeyOfItsOwn
//	        that deduplicates would answer from memory
package mcpcheck
