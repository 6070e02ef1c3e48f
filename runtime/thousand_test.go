package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// provider is a payments provider that can be asked about a key. It loses requests and
// acknowledgements, and shows a charge only some time after it was made.
type provider struct {
	mu      sync.Mutex
	charges map[string]int // by key; only the provider knows them
	burnt   map[string]bool
	asked   map[string]int
}

// fate is what happens to a key; it depends on the key's number alone.
func fate(key string) int {
	var n int
	if _, err := fmt.Sscanf(key, "k%d", &n); err != nil {
		panic(err)
	}
	return n % 4
}

func (p *provider) Dispatch(_ context.Context, c runtime.Call) (runtime.Reply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if fate(c.Key) == 0 && p.asked[c.Key] == 0 {
		return runtime.Reply{}, errReset // the request was lost on the way, and nobody can tell
	}
	if p.burnt[c.Key] && c.Attempt == 1 {
		return runtime.Reply{Status: tga.StatusDenied}, nil
	}
	p.charges[c.Key]++
	if c.Attempt == 1 {
		return runtime.Reply{}, errReset // the acknowledgement is lost
	}
	return ok(`{"charged":true}`), nil
}

func (p *provider) Probe(_ context.Context, c runtime.Call) (runtime.Probed, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[c.Key]++
	switch n := p.asked[c.Key]; {
	case fate(c.Key) == 1 && n == 1:
		return runtime.Probed{}, errors.New("the provider does not answer")
	case fate(c.Key) == 2 && n < 3:
		return runtime.Probed{Answer: ledger.ProbeNotRan}, nil // made, and not visible yet
	case p.charges[c.Key] > 0:
		return runtime.Probed{Answer: ledger.ProbeRan, Reply: ok(`{"charged":true}`), Evidence: runtime.Evidence{Source: "list", Detail: []byte(`{"n":1}`)}}, nil
	}
	p.burnt[c.Key] = true // claims the key: an old request that arrives now is refused
	return runtime.Probed{Answer: ledger.ProbeNotRan, Fenced: true}, nil
}

// killing is a store whose process dies before any effect is on disk.
type killing struct{ runtime.Store }

func (k killing) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	for _, a := range b.Artifacts {
		if a.Artifact.Type == tga.EffectType {
			return chain.Appended{}, errCrash
		}
	}
	for _, n := range b.Notes {
		if n.Kind == tga.NoteProbe {
			return chain.Appended{}, errCrash
		}
	}
	return k.Store.Append(ctx, l, b)
}

// TestThousandCallsKilledInDoubtAreResolvedByProbing: probes settle every call whose process was
// killed between attempt and effect, without a person and with one charge each, although requests
// and acknowledgements are lost and charges become visible late.
func TestThousandCallsKilledInDoubtAreResolvedByProbing(t *testing.T) {
	serial.Test(t)
	const calls = 1000
	p := &provider{charges: map[string]int{}, burnt: map[string]bool{}, asked: map[string]int{}}
	policy := runtime.Policy{Licence: ledger.Licence{Kind: ledger.Probe}, LicenceSet: true, Probe: runtime.Backoff{First: time.Second, Max: time.Minute}}
	b := setup(t, policy, func(b *bench) { b.opts.Trust.Prober = func(string, string) runtime.Prober { return p } })
	start := func(store runtime.Store) {
		rt, err := runtime.New(store, p, b.sup, b.opts)
		if err != nil {
			t.Fatal(err)
		}
		b.rt = rt
	}
	start(killing{b.db})
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := w; i < calls; i += 8 {
				_, err := b.call(charge(fmt.Sprintf("k%d", i)))
				wantCode(t, err, tga.StoreUnavailable)
			}
		})
	}
	all.Wait()
	b.reopen()
	start(b.db)
	p.mu.Lock()
	clear(p.asked) // nobody remembers the questions of the process that died
	p.mu.Unlock()
	doubts, err := b.rt.InDoubt(t.Context())
	if err != nil || len(doubts) != calls {
		t.Fatalf("%d in doubt, %v", len(doubts), err)
	}
	if _, err := b.rt.RecoverAll(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	b.fireAll()
	left, err := b.rt.Classify(t.Context())
	if err != nil || len(left) != 0 {
		t.Errorf("%d traces are not settled, %v", len(left), err)
	}
	double, missing := 0, 0
	for i := range calls {
		switch n := p.charges[fmt.Sprintf("k%d", i)]; {
		case n > 1:
			double++
		case n == 0:
			missing++
		}
	}
	s := b.rt.Stats()
	t.Logf("%d calls killed in doubt: %d effects found by probing, %d sent again after a fenced no, %d questions; %d double charges, %d without a charge",
		calls, s.ResolvedByProbe, s.Resent, s.Probes, double, missing)
	if double != 0 || missing != 0 || s.ResolvedByProbe+s.Resent != calls {
		t.Errorf("%d double, %d missing, %+v", double, missing, s)
	}
}
