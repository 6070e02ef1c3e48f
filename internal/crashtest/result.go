package crashtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/commit"
)

// Result is the result of a run of tiers, in the form of a file.
type Result struct {
	Seed    uint64      `json:"seed"`
	Commit  string      `json:"commit"`  // of the code under test; a tree that differs from it ends in "+"
	Machine string      `json:"machine"` // cores, processor, kernel
	Began   time.Time   `json:"began"`
	Tiers   []TierTime  `json:"tiers"`
	Counts  *Counts     `json:"counts"`
	Found   []Violation `json:"found,omitempty"`
}

// TierTime is how long a tier took, what it printed about itself, and its counts.
type TierTime struct {
	Name    string   `json:"name"`
	Seconds float64  `json:"seconds"`
	Said    []string `json:"said,omitempty"`
	Counts  *Counts  `json:"counts,omitempty"` // of this tier alone; older files have those of all tiers together
}

// NewResult describes a run that begins now.
func NewResult(seed uint64) *Result {
	return &Result{Seed: seed, Commit: commit.Name(), Machine: machine(), Began: time.Now().UTC().Truncate(time.Second), Counts: &Counts{}}
}

// Ran adds what a tier did.
func (res *Result) Ran(tier string, took time.Duration, r *Run) {
	own := &Counts{Seconds: int64(took.Seconds())}
	own.Add(&r.Counts)
	r.mu.Lock()
	res.Tiers = append(res.Tiers, TierTime{tier, took.Round(100 * time.Millisecond).Seconds(), r.said, own})
	r.mu.Unlock()
	res.Counts.Add(&r.Counts)
	res.Found = append(res.Found, r.Violations()...)
}

// Write puts the result into a file, one object.
func (res *Result) Write(name string) error {
	b, err := json.MarshalIndent(res, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(b, '\n'), 0o644)
}

// ReadResult reads what [Result.Write] wrote.
func ReadResult(name string) (*Result, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	res := &Result{}
	if err := json.Unmarshal(b, res); err != nil {
		return nil, fmt.Errorf("result %s: %w", name, err)
	}
	if res.Counts == nil {
		return nil, fmt.Errorf("result %s has no counts", name)
	}
	return res, nil
}

// Sum reads result files and prints a line for each and a table of the summed counts. It
// returns an error if a file has violations, or if a count that must be 0 is not.
func Sum(out io.Writer, names []string) error {
	total := &Counts{}
	var errs []error
	for _, name := range names {
		res, err := ReadResult(name)
		if err != nil {
			return err
		}
		var tiers []string
		for _, t := range res.Tiers {
			tiers = append(tiers, fmt.Sprintf("%s %.0f s", t.Name, t.Seconds))
		}
		if _, err := fmt.Fprintf(out, "%s  seed %d  commit %s  %s  (%s)\n", res.Began.Format(time.DateTime), res.Seed, res.Commit, strings.Join(tiers, ", "), res.Machine); err != nil {
			return err
		}
		for _, v := range res.Found {
			errs = append(errs, fmt.Errorf("%s: %s", name, v))
		}
		total.Add(res.Counts)
	}
	if err := total.Table(out); err != nil {
		return err
	}
	return errors.Join(append(errs, total.Err())...)
}

// machine describes the machine of a run, without its host name.
func machine() string {
	m := fmt.Sprintf("%d cores, %s/%s", goruntime.NumCPU(), goruntime.GOOS, goruntime.GOARCH)
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, name, ok := strings.Cut(string(b), "model name\t: "); ok {
			name, _, _ = strings.Cut(name, "\n")
			m += ", " + name
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m += ", Linux " + strings.TrimSpace(string(b))
	}
	return m
}
