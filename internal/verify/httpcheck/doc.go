// Package httpcheck asks HTTP servers whether a change stands ([New]) and whether a call
// ran ([NewProber]).
//
// # Verifier
//
//	[[verifier]]
//	resource_type = "invoice"
//	type          = "http"
//	url           = "https://api.example.com/v1/invoices/{resource_id}"
//	method        = "GET"                 # or HEAD; GET
//	headers_file  = "/etc/tgad/api.headers"  # "Name: value" a line, mode 0600
//	ca_file       = ""                    # PEM, in place of the system's
//	ok            = [200]                 # statuses of a resource that is there; 200 to 299
//	gone          = [404, 410]            # statuses of one that is not; these two
//	ignore        = []                    # of "etag" and "version": not compared though the change has one
//	timeout = "10s"
//	tries = 3
//	delay = "200ms"
//	max_delay = "5s"
//	settle = "0s"
//	settle_every = "1s"
//	  [[verifier.check]]                  # each must hold
//	  pointer = "/version"
//	  field   = "version"                 # or equals = "paid", or contains = "…"
//
// The URL may hold {resource_type}, {resource_id}, {operation}, {version}, {etag} and
// {external_ref}, escaped for their place; {+resource_id} keeps slashes.
//
// The answer is judged in this order. A status in gone means gone. Any other status that
// is not in ok, a redirect included, means cannot tell. An ETag that differs from the
// change's means changed. If there are checks, an answer that is no JSON or is over 1 MiB
// means cannot tell, a check that fails means changed, and a check whose value is not in
// the answer means cannot tell. A mark of the change that nothing compared means cannot
// tell. Otherwise the resource exists. ETags are compared weakly (RFC 9110 §8.8.3.2),
// with or without their quotes.
//
// # Prober
//
//	[[prober]]
//	server       = "payments"
//	tool         = "charge"
//	type         = "http"
//	url          = "https://api.example.com/v1/calls/{key}?customer={/customer/id}"
//	method       = "POST"                 # or GET; GET
//	fences       = true                   # asking burns or claims the key; POST only
//	headers_file = "/etc/tgad/api.headers"
//	body         = { key = "key", amount = "/amount", claim = "=true" }  # POST
//	timeout, tries, delay, max_delay, settle, settle_every as above
//	  [[prober.ran]]                      # one must hold
//	  status  = [200]                     # 200 to 299
//	  check   = [{ pointer = "/state", equals = "done" }, { pointer = "/key", field = "key" }]
//	  [[prober.not_ran]]
//	  status  = [404]
//	  [prober.reply]                      # what is recorded of a call that ran
//	  result  = "/response"               # JSON Pointer; "" = the whole body, byte for byte
//	  summary = "/message"                # JSON Pointer
//	    [[prober.reply.failure]]          # one holds: the tool reported an error
//	    check = [{ pointer = "/ok", equals = "false" }]
//
// URL and body may name {key}, {server}, {tool}, {trace_id}, {tool_call_id} and, by JSON
// Pointers, the call's arguments. If rules of both kinds hold, or none, the answer is
// unknown. With fences = true the operator attests that after this question the server
// refuses every attempt with that key that was sent before. A GET cannot have fences,
// because a cache on the way may answer it.
//
// Secrets are hidden in evidence, summary and errors. A recorded result is kept exactly as
// the server gave it.
//
// # Invariants
//
//	closed   what no rule says cannot be told                [look.judge], [inquiry.judge]  TestFindings, TestAnswers
//	fenced   only "did not run" is fenced, and only by POST  [inquiry.judge]                TestFences
//	secret   headers of the file stand nowhere               [web.Client]                   TestSecretsStayIn
package httpcheck
