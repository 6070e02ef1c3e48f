package load

import "testing"

// TestStockFollowsWhatIsTaken: a stock is filled with a quarter more than the last slice took. It gives up
// what is more than that, keeps to its bytes, and makes further traces when it is used up.
func TestStockFollowsWhatIsTaken(t *testing.T) {
	s := (&Store{Size: 1024}).stocks(1)
	st := s[0]
	for _, c := range []struct{ take, ready int }{{0, 21}, {40, 51}, {3, 4}, {0, 1}, {2 * st.most, st.most}} {
		if c.take != 0 || st.taken != 16 {
			st.taken = 0
			for range c.take {
				if tr := st.next(); tr == nil || tr.Key == "" {
					t.Fatal("no trace")
				}
			}
		}
		if err := s.fill(); err != nil || len(st.ready) != c.ready || st.taken != 0 {
			t.Errorf("after %d: %d are ready, want %d, %v", c.take, len(st.ready), c.ready, err)
		}
	}
	a := st.next()
	if a.Request == nil || a.Decision == nil || a.Call == nil || a.Effect == nil {
		t.Errorf("a prepared trace lacks a part: %+v", a)
	}
	if b, err := a.Begin(); err != nil || len(b.Artifacts) != 3 || a.Call.Call.DecisionDigest != a.Decision.Digest {
		t.Errorf("%+v, %v", b, err)
	}
}
