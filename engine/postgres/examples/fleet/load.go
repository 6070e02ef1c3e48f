package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// bank is the outside world: a tool server that charges at every request, whatever its key, and counts.
type bank struct {
	*httptest.Server
	mu      sync.Mutex
	charges map[string]int // by key
}

func newBank() *bank {
	b := &bank{charges: map[string]int{}}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest) // the request is incomplete: nothing is charged
			return
		}
		key := r.Header.Get("Idempotency-Key")
		b.mu.Lock()
		b.charges[key]++
		n := b.charges[key]
		b.mu.Unlock()
		time.Sleep(100 * time.Millisecond) // so that calls are under way at every blow
		fmt.Fprintf(w, `{"charge":%q,"number":%d}`, key, n)
	}))
	return b
}

// load is a set of callers. Each makes one call after the other, with a new key each, at any daemon that answers.
type load struct {
	f    *fleet
	end  context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex
	answered map[string]string // by key, the answer that the caller got
	doubtful map[string]bool   // keys of which a caller was told that the call is in doubt
	unknown  map[string]bool   // keys without an answer when the callers stopped
}

func newLoad(f *fleet, callers int) *load {
	ctx, end := context.WithCancel(context.Background())
	l := &load{f: f, end: end, answered: map[string]string{}, doubtful: map[string]bool{}, unknown: map[string]bool{}}
	for i := range callers {
		l.done.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				l.one(ctx, fmt.Sprintf("caller-%d-order-%d", i, n), i+n)
			}
		})
	}
	return l
}

// stop makes the callers end.
func (l *load) stop() {
	l.end()
	l.done.Wait()
}

func (l *load) answers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.answered)
}

// one asks for a charge until it gets an answer, or until it is told that the call is in doubt. It always
// uses the same key, and after each failure it asks the next daemon.
func (l *load) one(ctx context.Context, key string, first int) {
	for try := 0; ctx.Err() == nil; try++ {
		res, err := l.ask(key, first+try)
		l.mu.Lock()
		switch {
		case err == nil && res.State == tga.Completed:
			l.answered[key] = string(res.Value)
		case errors.Is(err, tga.EffectInDoubt):
			l.doubtful[key] = true
		}
		over := l.doubtful[key] || l.answered[key] != ""
		l.mu.Unlock()
		if over {
			return
		}
		wait(ctx, 50*time.Millisecond)
	}
	l.mu.Lock()
	l.unknown[key] = true
	l.mu.Unlock()
}

func (l *load) ask(key string, replica int) (runtime.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return l.f.replicas[replica%len(l.f.replicas)].Call(ctx, runtime.Request{Server: "bank", Tool: "charge", Key: key, Args: []byte(`{"amount":5}`)})
}

// tally is the result of a load.
type tally struct {
	calls, answered, doubtful, charges int
	twice                              []string // charged more than once
	lost                               []string // answered once, and now not at all or differently
	uncharged                          []string // answered, but unknown to the bank
}

// count asks for every charge once more, and compares the answers with those that the callers got and with
// the charges of the bank.
func (l *load) count(ctx context.Context, b *bank) (tally, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	again := map[string]string{}
	for key := range l.answered {
		res, err := l.ask(key, len(again))
		if again[key] = string(res.Value); err != nil {
			again[key] += err.Error()
		}
		if ctx.Err() != nil {
			return tally{}, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := compare(l.answered, again, b.charges)
	t.calls, t.doubtful = len(l.answered)+len(l.doubtful)+len(l.unknown), len(l.doubtful)
	return t, nil
}

// compare compares, by key, the earlier answers of the callers with the answers now and with the charges.
func compare(answered, again map[string]string, charges map[string]int) (t tally) {
	t.answered = len(answered)
	for key, was := range answered {
		if again[key] != was {
			t.lost = append(t.lost, fmt.Sprintf("%s: was %s, is %s", key, was, again[key]))
		}
		if charges[key] == 0 {
			t.uncharged = append(t.uncharged, key)
		}
	}
	for key, n := range charges {
		if t.charges += n; n > 1 {
			t.twice = append(t.twice, fmt.Sprintf("%s: %d times", key, n))
		}
	}
	return t
}

func (t tally) bad() int { return len(t.twice) + len(t.lost) + len(t.uncharged) }

// String returns a summary for people.
func (t tally) String() string {
	s := fmt.Sprintf("%6d calls, %d of them answered\n%6d shown as in doubt: a person or a probe settles them, nobody guesses\n%6d charges at the bank\n%6d charged twice\n%6d answers lost or changed\n%6d answers without a charge\n",
		t.calls, t.answered, t.doubtful, t.charges, len(t.twice), len(t.lost), len(t.uncharged))
	for _, list := range [][]string{t.twice, t.lost, t.uncharged} {
		for _, line := range list {
			s += "       " + line + "\n"
		}
	}
	return s
}
