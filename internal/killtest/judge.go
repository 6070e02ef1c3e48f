package killtest

import "github.com/tgad/tgad/internal/killtest/adapter"

// Verdict is what became of a call.
type Verdict uint8

// The verdicts, the worst first. The first three are faults of the engine.
const (
	Doubled   Verdict = iota // charged more than once
	Lost                     // answered, and then known otherwise or not at all; or completed without a charge
	False                    // charged, and the engine says that it did not run or has never heard of it
	InDoubt                  // the engine says that it does not know, and does not send it again
	NoAnswer                 // the engine has given no final outcome
	NotRun                   // not charged, and the engine says so
	Completed                // charged once, and the engine says so
	verdicts
)

// Verdicts returns all of them.
func Verdicts() (all []Verdict) {
	for v := range verdicts {
		all = append(all, v)
	}
	return all
}

// String returns the name that the table and the results have.
func (v Verdict) String() string {
	return [...]string{"doubled", "lost", "false_word", "in_doubt", "no_answer", "not_run", "completed"}[v]
}

// judge compares the charges that the world made with the answer that the client got, Running where it
// got none, and the status of the key after the last start.
func judge(charges int, got, last adapter.Outcome) Verdict {
	completed := got == adapter.Completed || last == adapter.Completed
	switch {
	case charges > 1:
		return Doubled
	case charges == 0 && completed:
		return Lost
	case got == adapter.Completed && last != adapter.Completed, got.Final() && last == adapter.Unknown:
		return Lost
	case charges == 1 && (got == adapter.Failed || last == adapter.Failed || last == adapter.Unknown):
		return False
	case last == adapter.Completed:
		return Completed
	case last == adapter.InDoubt:
		return InDoubt
	case last == adapter.Failed:
		return NotRun
	}
	return NoAnswer
}
