// Package call holds the rule by which a tool call without an idempotency key is told from
// a repeat of an earlier one. The rule is a table and does no I/O: the store looks the
// earlier call up, asks the table, and writes down what follows in the batch that begins
// the call ([runtime.Runtime.Begin]).
//
// Two calls are identical when server, tool, canonical arguments, namespace and the
// authenticated caller are the same. An identical call counts until its answer was
// delivered: its bytes were written whole to a client that was still there.
//
// # Invariants
//
//	apart   what a living client waits for is never another client's        [Decide]  TestEveryCaseOfTheRule
//	once    a call that may have run runs again by licence or by a person    [Decide]  TestEveryCaseOfTheRule
//	moving  an answered and delivered call is in nobody's way                [Decide]  TestEveryCaseOfTheRule
package call

import "time"

// State is how far the identical call has come.
type State uint8

// States of the identical call.
const (
	None      State = iota // there is none, or its answer was delivered
	Open                   // it is not at its end, and has not been sent or its executor may live
	Doubt                  // it may have run, and nobody is at it
	Answered               // its end is recorded, and was not delivered
	Unrun                  // its end is recorded: it certainly did not run
	Abandoned              // it was given up: whether it ran stays unknown
	Claimed                // a model has settled it: whether it ran is as unknown as before
)

// Conn is the connection that waits, or waited, for the identical call's answer.
type Conn uint8

// Connections of the identical call.
const (
	This    Conn = iota // the one that makes this call
	Alive               // another one that is still there
	Gone                // its process is dead, or its client has closed its end
	Unknown             // it cannot be seen from here, and its time is not over
)

// DefaultWindow is how long the answer of an identical call is served to its repeat when
// the connection that waited for it is gone.
const DefaultWindow = time.Hour

// Query is all that the decision depends on.
type Query struct {
	State State
	Conn  Conn
	// Age is how long ago the identical call came to its end; 0 while it has not.
	Age time.Duration
	// Window bounds the Age; zero means [DefaultWindow].
	Window time.Duration
	// Licensed says that the tool's licence may allow a call in doubt to be sent again.
	Licensed bool
	// Asks says that the person at this client can be asked.
	Asks bool
}

// Action is what this call is.
type Action uint8

// Actions. Only New begins another call.
const (
	New     Action = 1 + iota // a new call
	Join                      // the identical call: wait for its end
	Serve                     // the identical call: its recorded answer is the answer
	License                   // the identical call, in doubt: its licence decides
	Explain                   // the identical call: say what is known of it, and run nothing
	Ask                       // likewise, and ask the person whether to run it again
	Wait                      // cannot be told yet: look again
)

func (a Action) String() string {
	return [...]string{"", "new", "join", "serve", "license", "explain", "ask", "wait"}[a]
}

// fact is one thing that a rule can ask about a Query.
type fact uint16

const (
	isNone fact = 1 << iota
	isOpen
	isDoubt
	isAnswered
	isUnrun
	isAbandoned
	isClaimed
	onThis
	onAlive
	onGone
	onUnknown
	isOld      // its end is longer ago than the window
	isLicensed //
	canAsk     //
)

type rule struct {
	when   fact // all of these
	action Action
	reason string
}

// rules is the table. The first rule whose facts all hold decides. The last one holds
// always, so that a case which nobody foresaw runs nothing.
var rules = [...]rule{
	{isNone, New, "every identical call was answered, and its answer delivered"},
	{isUnrun, New, "the identical call certainly did not run"},
	{onAlive, New, "another client waits for the identical call: two may want the same"},
	{onUnknown, Wait, "whether somebody waits for the identical call cannot be seen from here"},

	{isOpen, Join, "a repeat of a call that is not at its end"},

	{isDoubt | isLicensed, License, "a repeat of a call that may have run"},
	{isDoubt | canAsk, Ask, "a repeat of a call that may have run, and nothing attests that a second run is harmless"},
	{isDoubt, Explain, "a repeat of a call that may have run, and nothing attests that a second run is harmless"},

	{isClaimed | canAsk, Ask, "a repeat of a call that a model has settled: nobody else knows whether it ran"},
	{isClaimed, Serve, "a repeat of a call that a model has settled: only a person has it run again"},

	{isAnswered | onThis, Serve, "a repeat of a call whose answer was not delivered"},
	{isAnswered | isOld | canAsk, Ask, "an identical call has run too long ago to be sure that this is its repeat"},
	{isAnswered | isOld, Explain, "an identical call has run too long ago to be sure that this is its repeat"},
	{isAnswered, Serve, "a repeat of a call whose answer was not delivered"},

	{isAbandoned | isOld, New, "the identical call was given up long ago"},
	{isAbandoned | canAsk, Ask, "a repeat of a call that was given up: whether it ran is not known"},

	{0, Explain, "a repeat of a call of which nothing more is known"},
}

// Decide says what a call without an idempotency key is, and why in words for people.
func Decide(q Query) (Action, string) {
	holds := q.facts()
	for _, r := range rules {
		if holds&r.when == r.when {
			return r.action, r.reason
		}
	}
	panic("call: the last rule holds always")
}

func (q Query) facts() fact {
	window := q.Window
	if window <= 0 {
		window = DefaultWindow
	}
	var holds fact
	for _, f := range [...]struct {
		fact fact
		is   bool
	}{
		{isNone, q.State == None}, {isOpen, q.State == Open}, {isDoubt, q.State == Doubt},
		{isAnswered, q.State == Answered}, {isUnrun, q.State == Unrun}, {isAbandoned, q.State == Abandoned}, {isClaimed, q.State == Claimed},
		{onThis, q.Conn == This}, {onAlive, q.Conn == Alive}, {onGone, q.Conn == Gone}, {onUnknown, q.Conn == Unknown},
		{isOld, q.Age > window}, {isLicensed, q.Licensed}, {canAsk, q.Asks},
	} {
		if f.is {
			holds |= f.fact
		}
	}
	return holds
}

// Oldest picks which of the undelivered identical calls a new one is compared with, of
// their connections from the oldest on: the oldest of this connection, else the oldest
// that nobody living waits for. One that another client waits for is only that client's,
// and must not hide an older or younger one that its own client has lost. -1 is none.
func Oldest(conns []Conn) int {
	for _, want := range [...]Conn{This, Gone, Unknown} {
		for i, c := range conns {
			if c == want {
				return i
			}
		}
	}
	return -1
}
