// Package doctor looks for problems of the machine on which a store and its daemon run. It
// only reads, except for a scratch file that measures the disk. It repairs nothing.
package doctor

// Verdict says what a finding means.
type Verdict string

// Verdicts.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn" // works, but look at it
	Bad  Verdict = "bad"  // does not work, or not as durably as it claims
)

// Finding is the result of one check.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail"`
	Remedy  string  `json:"remedy,omitempty"`
}
