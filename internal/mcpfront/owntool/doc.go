// Package owntool is the tools of tgad's own that a client is offered while a call of its tool server is in doubt: one that
// lists such calls, and where the operator says so one by which a model settles them. A model licenses no send by it.
package owntool
