package crashtest

import (
	"slices"
	"testing"
)

// TestCrashOfAWorkingState crashes calls that change a working state, before operations and inside recovery.
func TestCrashOfAWorkingState(t *testing.T) {
	for _, licence := range []string{"park", "dedupe_args"} {
		t.Run(licence, func(t *testing.T) {
			r := &Run{Seed: 1, SaveDir: t.TempDir()}
			r.Explore(workScenario(licence), 1, []int{0, 100}, sparse(5), Thoroughness{Depth: 2, Nested: 31, Retry: 4})
			if err := r.Err(); err != nil {
				t.Error(err)
			}
			if r.Counts.Recoveries == 0 || r.Counts.DoubleCrashes == 0 {
				t.Errorf("%d recoveries, %d of them double", r.Counts.Recoveries, r.Counts.DoubleCrashes)
			}
		})
	}
}

// TestWorkPropertiesFindWhatTheyName makes a sound store wrong in one way each.
func TestWorkPropertiesFindWhatTheyName(t *testing.T) {
	for _, c := range []struct {
		property, name string
		lie            func(o *Observed)
	}{
		{"K1", "a file is missing", func(o *Observed) { o.work.Files = o.work.Files[1:] }},
		{"K2", "nothing is there", func(o *Observed) { o.work.Map, o.work.Files = nil, nil }},
		{"K2", "a failed call left something", func(o *Observed) {
			o.work.Map = append(o.work.Map, "z")
			o.work.Files = o.work.Map
		}},
		{"K2", "a boundary is open", func(o *Observed) { o.work.List[0].Open = true }},
		{"K2", "a completed call has no boundary", func(o *Observed) { o.work.List[0].Success = false }},
		{"K2", "a call that failed has one of success", func(o *Observed) { o.work.List[1].Success = true }},
		{"K2", "a rollback is not carried out", func(o *Observed) {
			for i := range o.work.List {
				if o.work.List[i].Kind == "restore" {
					o.work.List[i].Success = false
				}
			}
		}},
	} {
		t.Run(c.property+" "+c.name, func(t *testing.T) {
			w := NewWorld(3)
			p, err := w.Start(Config{Work: true})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := p.DB.Close(); err != nil {
					t.Error(err)
				}
			}()
			workScenario("park").play(p)
			o := p.Observe()
			if bad := Judge(w.Journal(), o); len(bad) > 0 {
				t.Fatal(bad)
			}
			c.lie(o)
			if bad := Judge(w.Journal(), o); !slices.ContainsFunc(bad, func(v Violation) bool { return v.Property == c.property }) {
				t.Errorf("%s does not find it: %v", c.property, bad)
			}
		})
	}
}
