// Package outcome applies the operator's rules to the answers of tool servers. The rules say
// which outcome class an answer has, what the call changed in the world, which call would
// undo it, and where the server wants the idempotency key. [Compile] makes [Rules] from a
// configuration; their methods fit the fields of [runtime.Trust].
//
// It is pure: no I/O, no clock. An answer is untrusted data. A rule reads only the values
// that it names, and if such a value is missing, the rule does not invent one.
//
// # References
//
// Values are named by JSON Pointers (RFC 6901) whose first token is the document:
//
//	/args/…     the call's arguments
//	/result/…   the tool's answer. With answer = "mcp": its structuredContent, or else
//	            its only text that is a JSON object or array
//	/error/…    the JSON-RPC error of an MCP server, with answer = "mcp"
//	/item/…     an element of the array that a change's each names
//
// In a template "{/result/id}" stands for the value there, and "{{" for a brace. A null
// counts as absent everywhere. If a member is in its object twice, it and everything below
// it has no value.
//
// # Configuration
//
//	[[tool]]
//	server = "payments"
//	name   = "charge"            # "*" = every tool of the server that has no row
//	answer = "json"              # or "mcp"
//
//	[[tool.outcome]]             # tried in order; the first that matches gives the class
//	pointer  = "/result/code"    # with one of equals, matches, exists, absent
//	equals   = "card_declined"
//	status   = [402]             # of an HTTP server; not with answer = "mcp"
//	is_error = true              # the answer says the call failed
//	class    = "retryable_failure"
//
//	[[tool.change]]
//	each          = "/result/items"          # absent = one change
//	resource_type = "charge"                 # these three are required
//	resource_id   = "{/item/id}"
//	operation     = "create"
//	version       = "{/item/version}"        # these are left out where absent
//	etag          = "{/item/etag}"
//	external_ref  = "https://pay.example/{/item/id}"
//
//	[tool.inverse]
//	server = "payments"                      # absent = the tool's own
//	name   = "refund"
//	args   = '{"charge":"{/result/id}","amount":"{/args/amount}","note":"undo"}'
//
//	[tool.key]
//	argument = "/order/key"                  # into the arguments
//	header   = "X-Request-Id"                # name of an HTTP header
//	meta     = "example.com/request-id"      # member of MCP _meta
//
// # Invariants
//
//	pairs     no rule gives an answer a class that its status cannot carry  [Rules.Outcome]  TestClassAgreesWithStatus
//	doubt     what may have run is not made retryable_failure               [Compile]        TestDoubtIsNotMadeRetryable
//	          without a licence
//	whole     an inverse has every value it names, or is an error           [Rules.Inverse]  TestInverseNeedsEveryReference
//	exact     a value reaches the inverse as it is written                  [Rules.Inverse]  TestInverseKeepsValuesExactly
//	keyed     the key replaces no other value                               [PlaceArgument]  TestKeyReplacesNothing
//	no fail   an answer of any form is read without panic, and what is      [Rules.Outcome]  FuzzOutcome
//	          said of it can be stored
package outcome
