package ui

import "github.com/tgad/tgad/schemas/tga"

// words are the texts of the view.
var words = struct {
	foreignHost, foreignSite, noSession, usedLink, welcome, goOn  string
	inbox, traces, inDoubt, approvals, nothing, empty, moreCalls  string
	byID, byAge                                                   string
	oldToken, noReason, why, whyHint, readOnly, noVerify, problem string
	stranger, signedIn                                            string
	all, raw, download, cut, redacted, whatHappened, atWork       string
	readFile, damaged, proved, notProved                          string
	turns, noTurns, states, noStates, boundaries, noBoundaries    string
	unchanged, nothingUndone, rollback                            string
	reported, tooLarge                                            string
	store, lookAgain, noneYet, unsigned, notVerified              string
	tried, triedHow                                               string
	newLicence, underNewLicence, askedByView                      string
	many, fill, somebodyFirst                                     string
	bell, bellOn, bellOff, newDoubt, newApproval, newMany         string
}{
	foreignHost: "This address is not this machine's. Open the link that tgad ui printed.",
	foreignSite: "Another site sent this request. It was refused, and nothing was done.",
	noSession:   "You are not logged in. Open the link that tgad ui printed. It works once; start tgad ui again for a new one.",
	usedLink:    "This link is used up or wrong. Start tgad ui again for a new one.",
	welcome:     "You are logged in",
	goOn:        "Go to the inbox",
	inbox:       "Inbox",
	traces:      "Calls",
	inDoubt:     "Calls in doubt",
	approvals:   "Waiting for a decision",
	nothing:     "Nothing waits for you.",
	empty:       "There is no call here.",
	oldToken:    "This page is older than your session. Load it again; nothing was done.",
	noReason:    "Say why. The reason stands in the log beside what you decided.",
	why:         "Why",
	whyHint:     "It is kept in the log permanently.",
	stranger:    "No token of yours came with this request: you can look at everything, and do nothing.",
	signedIn:    "You are ",
	readOnly:    "The store is at rest: it can be looked at, and nothing can be done.",
	noVerify:    "This trace does not verify. What follows is not proven.",
	problem:     "It was not done",
	moreCalls:   "More calls",
	byID:        "In the order of their ids. With list_index in [store] the newest come first.",
	byAge:       "The newest first, by when a call came into its state.",
	all:         "all",
	raw:         "The entries as they are stored",
	download:    "download",
	redacted:    "Some of it was taken out before it was stored.",
	cut:         "Cut here: %d bytes more are not on this page.",

	newLicence:      "Let the new licence decide",
	underNewLicence: "The licence of the tool was %s when the call was attempted, and is %s now. By that one alone, %s. Your reason and the licence are recorded first.",
	askedByView:     "to show what would follow",

	tried:    "How it was tried",
	triedHow: "Before its release, with a tool and callers that keep their own account. docs/CRASH.md says how, and at which commits.",

	reported: "What the log of tgad had of this call. It was last written to at %v; the log may have more by now.",
	tooLarge: "not in this file; its SHA-256 is %v",

	readFile:  "It can be looked at, and nothing can be done.",
	damaged:   "This file is damaged, or is not what it says. Only what was found to be right before the fault is shown.",
	proved:    "What the file proves",
	notProved: "What it does not prove",

	turns:         "Turns",
	noTurns:       "There is no turn here.",
	states:        "Working states",
	noStates:      "The store has no working state.",
	boundaries:    "The state can go back to before each of these, the newest first.",
	noBoundaries:  "No boundary is kept.",
	unchanged:     "It changed nothing.",
	nothingUndone: "Nothing is taken back.",
	rollback:      "Going back takes the files of the state, so it is done on the command line, while no process has the store:",

	store:       "Store",
	lookAgain:   "look again for how many a second",
	noneYet:     "none yet",
	unsigned:    "The store signs no checkpoints.",
	notVerified: "Nobody has asked for it here.",

	many:          "Settle many at once",
	fill:          "In the reason, {key} and {trace} stand for those of each call. Nothing is done before you press a button below.",
	somebodyFirst: "Where somebody else was first, what is recorded stands, and nothing was done twice.",

	bell:        "Notify me",
	bellOn:      "While this page is hidden, your browser says so when something new waits.",
	bellOff:     "Your browser lets this page raise no notifications. Its settings for this address say so.",
	newDoubt:    "A call is in doubt",
	newApproval: "A call waits for a decision",
	newMany:     "new matters wait for you",

	whatHappened: "What happened to it?",
	atWork:       "Its executor may still be about to send it. Whether it ran is not certain before its time is over.",
}

// action is something that a person can do about a trace, with its consequence.
type action struct {
	verb, name, follows string
	grave               bool
}

// doubtActions settle a call in doubt, and decisions answer an approval.
var (
	doubtActions = []action{
		{"ran", "It ran", "The call is recorded as a success. Whoever asks with its key gets that, and it is never sent again.", false},
		{"failed", "It failed for good", "The call is recorded as a failure. Whoever asks with its key gets that, and it is never sent again.", false},
		{"not-run", "It did not run", "The call is recorded as not executed. Its key is free: who asks for a retry sends it. If it did run, it runs twice.", true},
		{"abandon", "Nobody will know", "The call ends as failed, and that it may have run stays on record. Its key is never sent again.", false},
	}
	decisions = []action{
		{"approve", "Approve", "With enough votes the call is sent, with exactly these arguments.", true},
		{"deny", "Deny", "One denial denies. The call is not sent.", false},
	}
)

// relicensing is the verb that lets the current licence decide about a call in doubt.
const relicensing = "relicense"

// settled is the text about the result of an action.
func settled(verb string, state tga.State) string {
	if verb == relicensing {
		return words.newLicence + ": recorded. The call is " + state.String() + "."
	}
	for _, a := range append(append([]action{}, doubtActions...), decisions...) {
		if a.verb == verb {
			return a.name + ": recorded. The call is " + state.String() + "."
		}
	}
	return ""
}
