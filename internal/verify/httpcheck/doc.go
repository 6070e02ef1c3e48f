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
// In this order: a gone status is gone; another that is not ok cannot tell; an ETag that
// is not the change's is changed; a check that fails is changed. Then a mark of the
// change that nothing compared, a check whose value is not in the answer, an answer
// that is no JSON or over 1 MiB where a check needs it: cannot tell. Else it exists. A
// redirect cannot tell. ETags are compared weakly (RFC 9110 §8.8.3.2), with or without
// their quotes.
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
// Pointers, the call's arguments. An answer for which rules of both kinds hold, or none,
// is unknown. Operators who set fences attest that whoever asks for a key in this way
// makes the server refuse every attempt sent before; a GET is not taken for that: a
// cache on the way may answer it.
//
// A recorded result is the server's own words and is not searched for secrets; evidence,
// summary and errors are.
//
// # Invariants
//
//	closed   what no rule says cannot be told                [look.judge], [inquiry.judge]  TestFindings, TestAnswers
//	fenced   only "did not run" is fenced, and only by POST  [inquiry.judge]                TestFences
//	secret   headers of the file stand nowhere               [web.Client]                   TestSecretsStayIn
package httpcheck
