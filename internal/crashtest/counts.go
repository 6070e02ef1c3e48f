package crashtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
)

// Counts are the numbers of a run. The JSON keys are the contract of `make crash` and
// `make torture`.
type Counts struct {
	CrashPoints        int64 `json:"crash_points"`        // moments at which a crash was made
	Recoveries         int64 `json:"recoveries"`          // stores opened and recovered after a crash or fault
	DoubleCrashes      int64 `json:"double_crashes"`      // of them after a crash inside a recovery
	TripleCrashes      int64 `json:"triple_crashes"`      // of them after a crash inside the recovery of a recovery
	IndexesLost        int64 `json:"indexes_lost"`        // recoveries before which the index was thrown away
	Injections         int64 `json:"injections"`          // runs in which an operation of the disk was made to fail
	InjectedIO         int64 `json:"injected_io"`         // of them with an input/output error
	InjectedSpace      int64 `json:"injected_no_space"`   // of them with no space left
	InjectedSticky     int64 `json:"injected_sticky"`     // of them all later operations failed too
	InjectedDone       int64 `json:"injected_done"`       // of them the operation took place and was said to fail
	Sigkills           int64 `json:"sigkills"`            // real processes killed
	PowerCuts          int64 `json:"power_cuts"`          // of real file systems
	BlockLogImages     int64 `json:"block_log_images"`    // subsets of unflushed block writes
	RapidSequences     int64 `json:"rapid_sequences"`     // of random commands
	Corruptions        int64 `json:"corruptions"`         // damaged or cut files
	CorruptionsSilent  int64 `json:"corruptions_silent"`  // that changed what the store says, unnoticed
	Histories          int64 `json:"histories"`           // of concurrent callers, found linearizable
	PlantedBugs        int64 `json:"planted_bugs"`        //
	PlantedBugsKilled  int64 `json:"planted_bugs_killed"` //
	BadInputs          int64 `json:"bad_inputs"`          // given to decoders and parsers
	Redispatches       int64 `json:"redispatches"`        // unlicensed sends after the first
	LicensedResends    int64 `json:"licensed_resends"`    //
	DoubleEffects      int64 `json:"double_effects"`      //
	AcknowledgedLosses int64 `json:"acked_losses"`        //
	Seconds            int64 `json:"seconds"`             //
	mu                 sync.Mutex
}

// add changes a count.
func (c *Counts) add(field *int64, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*field += n
}

// injected counts a run whose fault has met an operation, by kind.
func (c *Counts) injected(f fault) {
	c.add(&c.Injections, 1)
	for field, is := range map[*int64]bool{
		&c.InjectedIO: errors.Is(f.err, ErrIO), &c.InjectedSpace: errors.Is(f.err, ErrSpace), &c.InjectedSticky: f.sticky, &c.InjectedDone: f.done,
	} {
		if is {
			c.add(field, 1)
		}
	}
}

// Add adds the counts of another run.
func (c *Counts) Add(d *Counts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(d).Elem()
	for i := range to.NumField() {
		if f := to.Field(i); f.Kind() == reflect.Int64 {
			f.SetInt(f.Int() + from.Field(i).Int())
		}
	}
}

// note counts violations by what they mean.
func (c *Counts) note(bad []Violation) {
	for _, v := range bad {
		switch v.Property {
		case "S1", "S3", "T1":
			c.add(&c.Redispatches, 1)
		case "S2":
			c.add(&c.DoubleEffects, 1)
		case "S6", "T6":
			c.add(&c.AcknowledgedLosses, 1)
		}
	}
}

// Err says which of the counts that must be zero is not, and whether a planted bug
// survived.
func (c *Counts) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.Redispatches+c.DoubleEffects+c.AcknowledgedLosses+c.CorruptionsSilent > 0:
		return fmt.Errorf("redispatches %d, double_effects %d, acked_losses %d, corruptions_silent %d: all must be 0",
			c.Redispatches, c.DoubleEffects, c.AcknowledgedLosses, c.CorruptionsSilent)
	case c.PlantedBugsKilled < c.PlantedBugs:
		return fmt.Errorf("%d of %d planted bugs survived", c.PlantedBugs-c.PlantedBugsKilled, c.PlantedBugs)
	}
	return nil
}

// JSON is the counts on one line.
func (c *Counts) JSON() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return json.Marshal(c)
}

// Each calls f with each count and its name in JSON, in their order.
func (c *Counts) Each(f func(name string, n int64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if n := v.Field(i); n.Kind() == reflect.Int64 {
			f(v.Type().Field(i).Tag.Get("json"), n.Int())
		}
	}
}

// Table writes the counts for people.
func (c *Counts) Table(w io.Writer) (err error) {
	c.Each(func(name string, n int64) {
		if err == nil {
			_, err = fmt.Fprintf(w, "%-22s %12d\n", name, n)
		}
	})
	return err
}
