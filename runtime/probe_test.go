package runtime_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestResendsThatProbesLicenseAreBounded: a tool server says each time that the call did not run and
// never will, and then loses the call again. One run makes no more sends than the operator allows. The
// next run may make as many again.
func TestResendsThatProbesLicenseAreBounded(t *testing.T) {
	for resends, want := range map[int]int{-1: 0, 0: runtime.DefaultResends, 1: 1, 3: 3} {
		b, p := probing(t, ledger.Licence{}, func(n int, _ runtime.Call) (runtime.Probed, error) {
			return runtime.Probed{Answer: ledger.ProbeNotRan, Fenced: n < 50}, nil // a run without a bound ends
		})
		b.opts.Policy = func(string, string) runtime.Policy {
			return runtime.Policy{
				Licence: ledger.Licence{Kind: ledger.Probe}, LicenceSet: true, SendTimeout: time.Second,
				Probe: runtime.Backoff{First: time.Minute, Max: time.Hour}, Resends: resends,
			}
		}
		b.start()
		res, err := b.call(charge("k"))
		wantCode(t, err, tga.EffectInDoubt)
		b.wantSends(1 + want)
		if s := b.rt.Stats(); s.Resent != uint64(want) || p.asked != 1+want {
			t.Errorf("%d re-sends: %d counted, %d questions", resends, s.Resent, p.asked)
		}
		_, err = b.rt.Recover(t.Context(), res.TraceID)
		wantCode(t, err, tga.EffectInDoubt)
		b.wantSends(1 + 2*want)
	}
}

// TestQuestionAboutAnEarlierAttemptSaysNothingOfTheNewest: the server was asked about the first attempt,
// and fenced it; the second may still be under way. The earlier question about the key does not mean that
// the sender of the second attempt has been gone since this process began.
func TestQuestionAboutAnEarlierAttemptSaysNothingOfTheNewest(t *testing.T) {
	const flight = 10 * time.Minute
	b, _ := probing(t, ledger.Licence{MaxInFlight: flight}, func(n int, _ runtime.Call) (runtime.Probed, error) {
		return runtime.Probed{Answer: ledger.ProbeNotRan, Fenced: n == 1}, nil
	})
	b.opts.Monotonic = b.monotonic
	b.start()
	b.advance(2 * flight)
	res, err := b.call(charge("k"))
	wantCode(t, err, tga.EffectInDoubt)
	b.wantSends(2)
	b.tool.answer = nil
	b.advance(flight)
	_, err = b.rt.Recover(t.Context(), res.TraceID)
	wantCode(t, err, tga.EffectInDoubt) // exactly max_in_flight is not later
	b.wantSends(2)
	b.advance(time.Millisecond)
	if res, err := b.rt.Recover(t.Context(), res.TraceID); err != nil || res.State != tga.Completed {
		t.Errorf("past the limit: %+v, %v", res, err)
	}
	b.wantSends(3)
}

// TestNoteOfAProbeSaysWhatItRestsOn: the source and the content of the answer are in the note, and with
// the effect if there is one. The note omits what the server does not give.
func TestNoteOfAProbeSaysWhatItRestsOn(t *testing.T) {
	serial.Test(t)
	for name, c := range map[string]struct {
		said   runtime.Evidence
		source any
	}{
		"nothing":                   {},
		"a source":                  {runtime.Evidence{Source: "GET /charges"}, "GET /charges"},
		"evidence":                  {runtime.Evidence{Detail: []byte(`{"id":"ch_1"}`)}, nil},
		"both":                      {runtime.Evidence{Source: "GET /charges", Detail: []byte("1")}, "GET /charges"},
		"the longest source":        {runtime.Evidence{Source: strings.Repeat("s", 500)}, strings.Repeat("s", 500)},
		"a source that is too long": {runtime.Evidence{Source: strings.Repeat("s", 501)}, strings.Repeat("s", 499) + "…"},
	} {
		for _, answer := range []ledger.ProbeAnswer{ledger.ProbeRan, ledger.ProbeNotRan, ledger.ProbeUnknown} {
			t.Run(name+"/"+answer.String(), func(t *testing.T) {
				b, _ := probing(t, ledger.Licence{}, func(int, runtime.Call) (runtime.Probed, error) {
					return runtime.Probed{Answer: answer, Reply: ok(`1`), Evidence: c.said}, nil
				})
				res, err := b.call(charge("k"))
				if (err == nil) != (answer == ledger.ProbeRan) {
					t.Fatal(err)
				}
				trace, err := b.db.Load(t.Context(), res.TraceID)
				if err != nil {
					t.Fatal(err)
				}
				var digest any
				if len(c.said.Detail) > 0 {
					digest = tga.Sum(c.said.Detail).String()
				}
				notes := 0
				for _, n := range trace.Notes {
					if n.Kind != tga.NoteProbe {
						continue
					}
					notes++
					var body map[string]any
					if err := json.Unmarshal(n.Body, &body); err != nil {
						t.Fatal(err)
					}
					_, there := body["source"]
					_, kept := body["evidence_digest"]
					if body["source"] != c.source || there != (c.source != nil) || body["evidence_digest"] != digest || kept != (digest != nil) {
						t.Errorf("note %s", n.Body)
					}
				}
				evidence := 0
				for _, d := range trace.Documents {
					if d.Pointer == tga.PointerEvidence {
						evidence++
					}
				}
				if want := len(c.said.Detail) > 0 && answer == ledger.ProbeRan; notes != 1 || evidence != 0 != want {
					t.Errorf("%d notes, %d documents of evidence", notes, evidence)
				}
			})
		}
	}
}

// TestSenderOfAnAskedAttemptIsGone: if an earlier process asked about an attempt, its sender was gone
// then, so max_in_flight counts from the start of this process. If nobody asked about it, max_in_flight
// counts from the first question.
func TestSenderOfAnAskedAttemptIsGone(t *testing.T) {
	const bound = 10 * time.Minute
	for _, asked := range []bool{true, false} {
		b, p := probing(t, ledger.Licence{MaxInFlight: bound}, func(int, runtime.Call) (runtime.Probed, error) {
			return runtime.Probed{Answer: ledger.ProbeNotRan}, nil
		})
		ask := b.opts.Trust.Prober
		if !asked {
			b.opts.Trust.Prober = nil
			b.start()
		}
		res, err := b.call(charge("k"))
		wantCode(t, err, tga.EffectInDoubt)
		if n := b.notes(res.TraceID, tga.NoteProbe); (n == 1) != asked || (p.asked == 1) != asked || b.notes(res.TraceID, tga.NoteDoubt) == 0 {
			t.Fatalf("%d questions, %d noted", p.asked, n)
		}
		b.opts.Trust.Prober = ask
		b.start() // over the same open store: only the notes say what was done before
		b.tool.answer = nil
		b.advance(bound + time.Millisecond)
		_, err = b.rt.Recover(t.Context(), res.TraceID)
		if !asked {
			wantCode(t, err, tga.EffectInDoubt)
			b.wantSends(1)
			b.advance(bound + time.Millisecond)
			_, err = b.rt.Recover(t.Context(), res.TraceID)
		}
		if err != nil {
			t.Errorf("asked before %v: %v", asked, err)
		}
		b.wantSends(2)
		b.wantState(res.TraceID, tga.Completed)
	}
}

// TestQuestionOfAnotherProcessFencesNothing: a process sends a call and asks about it, and ends. Another one, which began
// long before and shares the store, counts max_in_flight from its own first question.
func TestQuestionOfAnotherProcessFencesNothing(t *testing.T) {
	b, _ := probing(t, ledger.Licence{MaxInFlight: 10 * time.Minute}, func(int, runtime.Call) (runtime.Probed, error) {
		return runtime.Probed{Answer: ledger.ProbeNotRan}, nil
	})
	other := b.rt
	b.advance(time.Hour)
	b.start()
	res, err := b.call(charge("k"))
	wantCode(t, err, tga.EffectInDoubt)
	b.tool.answer = nil
	for _, passed := range []time.Duration{time.Second, 10 * time.Minute} {
		b.advance(passed)
		_, err = other.Recover(t.Context(), res.TraceID)
		wantCode(t, err, tga.EffectInDoubt)
		b.wantSends(1)
	}
	b.advance(time.Millisecond)
	if res, err := other.Recover(t.Context(), res.TraceID); err != nil || res.State != tga.Completed {
		t.Errorf("%+v, %v", res, err)
	}
	b.wantSends(2)
}

// TestProbedResendWaitsForTheServer: the tool server says that a call did not run and never will, and asked for rest when it
// got the call. The call is sent again when the rest is over, by this run if a send may take that long.
func TestProbedResendWaitsForTheServer(t *testing.T) {
	for _, rest := range []time.Duration{50 * time.Millisecond, time.Hour} {
		b, _ := probing(t, ledger.Licence{}, func(int, runtime.Call) (runtime.Probed, error) {
			return runtime.Probed{Answer: ledger.ProbeNotRan, Fenced: true}, nil
		})
		b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
			if n > 1 {
				return ok(`1`), nil
			}
			e := tga.Errorf(tga.RateLimited, "it may have run")
			e.RetryAfter = rest
			return runtime.Reply{}, e
		}
		before := time.Now()
		res, err := b.call(charge("k"))
		if rest == time.Hour {
			wantCode(t, err, tga.EffectInDoubt)
			for range 59 {
				b.advance(time.Minute)
				if _, err := b.rt.FireTimers(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			b.wantSends(1)
			b.advance(time.Hour)
			if _, err := b.rt.FireTimers(t.Context()); err != nil {
				t.Fatal(err)
			}
		} else if err != nil || time.Since(before) < rest {
			t.Errorf("after %v: %+v, %v", time.Since(before), res, err)
		}
		b.wantSends(2)
		b.wantState(res.TraceID, tga.Completed)
	}
}
