//go:build unix

package journal

import (
	"cmp"
	"maps"
	"slices"
)

// Call identifies a logical call as the tool server sees it.
type Call struct {
	Tool string `json:"tool"`
	Key  string `json:"key"`
}

// Count says what happened under one tool and key.
type Count struct {
	Received uint64 `json:"received"`
	Charges  uint64 `json:"charges"`
	Repeated uint64 `json:"repeated"` // answered again without a charge
}

// Summary is what a journal adds up to.
type Summary struct {
	total    Count
	calls    map[Call]*Count
	first    map[Call]Record  // first charge of each
	balances map[string]int64 // charged, by account
}

func newSummary() *Summary {
	return &Summary{calls: map[Call]*Count{}, first: map[Call]Record{}, balances: map[string]int64{}}
}

func (s *Summary) add(r Record) {
	call := Call{Tool: r.Tool, Key: r.Key}
	c := s.calls[call]
	if c == nil {
		c = &Count{}
		s.calls[call] = c
	}
	switch r.Op {
	case Received:
		s.total.Received++
		c.Received++
	case Charged:
		s.total.Charges++
		c.Charges++
		s.balances[r.Account] += r.Amount
		if _, ok := s.first[call]; !ok {
			s.first[call] = r
		}
	case Repeated:
		s.total.Repeated++
		c.Repeated++
	}
}

// Total counts all calls together.
func (s *Summary) Total() Count { return s.total }

// Count counts the calls of one tool and key.
func (s *Summary) Count(call Call) Count {
	if c := s.calls[call]; c != nil {
		return *c
	}
	return Count{}
}

// First returns the first charge of a tool and key.
func (s *Summary) First(call Call) (Record, bool) {
	r, ok := s.first[call]
	return r, ok
}

// Balance returns what an account was charged, in minor units.
func (s *Summary) Balance(account string) int64 { return s.balances[account] }

// Charged returns the sum of all accounts.
func (s *Summary) Charged() int64 {
	var sum int64
	for _, v := range s.balances {
		sum += v
	}
	return sum
}

// Report is a summary in the form that the command prints.
type Report struct {
	Count
	// Double counts the tool and key pairs that were charged more than once. Calls
	// without a key are not counted, because nothing tells whether two of them are one.
	Double uint64       `json:"double"`
	Keys   []KeyedCount `json:"keys"` // by tool, then key
}

// KeyedCount is one line of a [Report].
type KeyedCount struct {
	Call
	Count
}

// Report returns the counts in total and by key.
func (s *Summary) Report() Report {
	r := Report{Count: s.total, Keys: []KeyedCount{}}
	for _, call := range slices.SortedFunc(maps.Keys(s.calls), func(a, b Call) int {
		return cmp.Or(cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Key, b.Key))
	}) {
		c := *s.calls[call]
		if call.Key != "" && c.Charges > 1 {
			r.Double++
		}
		r.Keys = append(r.Keys, KeyedCount{Call: call, Count: c})
	}
	return r
}
