// Package call decides whether a tool call without an idempotency key is new or repeats an
// earlier one. The rule is a table and does no I/O. [runtime.Runtime.Begin] looks up the earlier
// call, asks the table, and records the result in the append that begins the call.
//
// Two calls are identical if server, tool, canonical arguments, namespace and the authenticated
// caller are the same. An earlier identical call counts until its answer was delivered, which
// means: its bytes were written whole to a client that was still there.
//
// # Invariants
//
//	apart   a call that a living client waits for never answers another      [Decide]  TestEveryCaseOfTheRule
//	        client's call
//	once    a call that may have run runs again only if its licence or a     [Decide]  TestEveryCaseOfTheRule
//	        person allows it
//	moving  a call whose answer was delivered affects no later call          [Decide]  TestEveryCaseOfTheRule
package call

import "time"

// State is the state of the identical call.
type State uint8

// States of the identical call.
const (
	None      State = iota // there is none, or its answer was delivered
	Open                   // it has not ended, and either was not sent or its executor may live
	Doubt                  // it may have run, and no live process is executing it
	Answered               // its end is recorded, and its answer was not delivered
	Unrun                  // its end is recorded: it certainly did not run
	Abandoned              // it was given up: whether it ran stays unknown
	Claimed                // a model has settled it, which does not prove whether it ran
)

// Conn is the connection that waits, or waited, for the identical call's answer.
type Conn uint8

// Connections of the identical call.
const (
	This    Conn = iota // the connection that makes this call
	Alive               // another connection that still exists
	Gone                // its process is dead, or its client has closed its end
	Unknown             // this process cannot see whether it exists, and the permit's time is not over
)

// DefaultWindow is how long after its end the answer of an identical call is served to a repeat,
// if the connection that waited for it is gone.
const DefaultWindow = time.Hour

// Query has everything that the decision depends on.
type Query struct {
	State State
	Conn  Conn
	// Age is how long ago the identical call ended; 0 if it has not.
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
	Ask                       // as Explain, and ask the person whether to run it again
	Wait                      // not known yet: ask again later
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

// rules is the table. The first rule whose facts all hold decides. The last rule always holds, so
// that a case which no other rule covers runs nothing.
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

// Oldest picks the undelivered identical call that a new call is compared with. conns are the
// calls' connections, from the oldest call on. It picks the oldest call of this connection, else
// the oldest whose connection is gone, else the oldest whose connection is unknown. It never picks
// a call that another living client waits for: that call must not hide another one that its own
// client has lost. It returns the index, or -1 for none.
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
