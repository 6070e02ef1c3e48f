// Package model asks language models over HTTP: models that speak OpenAI's chat completions API
// and models that speak Anthropic's messages API. Both are a [turn.Model].
//
// Each question is one request, on a connection of its own, over HTTP/1.1, without proxy,
// cookies, redirects or retries. The turn decides whether a failed question is asked again,
// because its journal records each time it was asked.
//
// # Invariants
//
//	once      one Generate, at most one request on the wire           [client.post]    TestOneRequestPerGenerate
//	whole     an answer that did not come to its end is a failure     [said.answer]    TestCutStreamIsNoAnswer
//	raw       arguments of tool calls are the text the model wrote    [said.answer]    TestArgumentsStayRaw
//	unsent    runtime.ErrNotSent only where no connection was had     [client.post]    TestWhatIsNotSentSaysSo
//	secret    no error holds the key                                  [client.hide]    TestKeyIsInNoError
//
// # Failures
//
// A failure is a [*turn.Failure]. The table statuses says what an HTTP status means. If the error
// has a type or code that says more, the table kinds takes precedence. An answer that cannot be
// decoded is LLM_ERROR.
package model
