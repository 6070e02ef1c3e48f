// Package modelserver is a language model's server for tests and for the demonstration: it
// speaks the wire formats of OpenAI's chat completions and of Anthropic's messages, plain
// and streamed, and says what a script tells it to say, at once, slowly, or not at all.
//
//	POST /v1/chat/completions
//	POST /v1/messages
//
// It is as strict as the providers: a conversation that they refuse, it refuses with the
// same status and the same form of error. It counts requests in a journal that is synced
// before anything is answered. So the journal is reliable even if the client was killed.
package modelserver
