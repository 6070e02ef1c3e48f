// Package modelserver is a language model's server for tests and for the demonstration: it
// speaks the wire formats of OpenAI's chat completions and of Anthropic's messages, plain
// and streamed, and says what a script tells it to say, at once, slowly, or not at all.
//
//	POST /v1/chat/completions
//	POST /v1/messages
//
// It is as strict as the providers are: a conversation that they refuse it refuses with
// their status and in their form. It counts what it is asked, in a journal that is synced
// before anything is answered, so that it can bear witness about a client that was killed.
package modelserver
