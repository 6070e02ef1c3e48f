// Package model asks language models over HTTP: those that speak OpenAI's chat completions
// and those that speak Anthropic's messages. Both are a [turn.Model].
//
// Each question is one request, on a connection of its own, over HTTP/1.1, without proxy,
// cookies, redirects or retries: whether a failed question is asked again is for the turn
// to decide, whose journal knows of each time it was asked.
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
// A failure is a [*turn.Failure]. What a status means, the table statuses says; an error's
// type or code that says more goes before it. What does not read as an answer is LLM_ERROR.
package model
