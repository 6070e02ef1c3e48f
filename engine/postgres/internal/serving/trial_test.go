package serving_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// trial is a fleet that callers ask while its parts are struck.
type trial struct {
	t       *testing.T
	keys    int // at least
	faults  int // at least
	seed    uint64
	commit  string
	servers *servers
	tools   *journal
	history *history

	next   atomic.Int64 // key
	struck atomic.Int64 // faults so far
	raced  atomic.Int64 // keys whose callers asked two replicas at the same moment
	meets  meetings
	calm   sync.RWMutex // held by a fault that no other one may come beside
	quiet  sync.RWMutex // held by a fault that no caller may come beside
	mu     sync.Mutex
	counts map[string]int // of each kind of fault
	lone   []string       // keys of which the numbers know nothing
}

// TestFleetUnderFaults: many callers ask several replicas for the same keys, while replicas, servers
// and what lies between them are killed, stopped and cut. The tool server writes down what
// reaches it. No key is sent twice, what a person saw stays true, no answer is lost, the
// answers of each key have an order, each call ends or is shown in doubt, and the store is sound.
//
// TGAD_TRIAL_KEYS, TGAD_TRIAL_FAULTS and TGAD_TRIAL_SEED set its size and its choices. From 100 faults
// on it has servers of its own, a primary and a synchronous standby, which are struck too. TGAD_TRIAL_OUT is
// a file for what was seen.
func TestFleetUnderFaults(t *testing.T) {
	x := &trial{t: t, keys: 10, faults: 6, counts: map[string]int{}, commit: head(), meets: meetings{at: map[int]chan struct{}{}}}
	if !testing.Short() {
		x.keys, x.faults = 200, 100
	}
	if serial.Whole() {
		x.keys, x.faults = 10_000, 2000
	}
	x.keys, x.faults = number(t, "TGAD_TRIAL_KEYS", x.keys), number(t, "TGAD_TRIAL_FAULTS", x.faults)
	x.seed = uint64(number(t, "TGAD_TRIAL_SEED", int(time.Now().UnixNano()>>10)))
	t.Logf("seed %d", x.seed)
	began := time.Now()
	x.tools, x.history = newJournal(t, began), newHistory(began)
	x.prepare(2 + min(1, x.faults/100))
	x.strikeAndCall()
	t.Logf("%s: %d faults, %d keys", time.Since(began).Round(time.Second), x.struck.Load(), x.next.Load())
	x.makeWell()
	x.report(time.Since(began), x.judge())
}

func number(t *testing.T, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// prepare starts servers and replicas.
func (x *trial) prepare(replicas int) {
	t := x.t
	dir, err := os.MkdirTemp("", "t") // its path leaves room for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s := &servers{own: x.faults >= 100}
	x.servers = s
	if s.own {
		first := newServer(t)
		s.dir, s.slots = filepath.Dir(first.Dir), []*pgserver.Server{first}
		if err := s.newStandby(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.remove(); err != nil {
				t.Error(err)
			}
		})
	} else {
		server, err := common.Server()
		if err != nil {
			t.Fatal(err)
		}
		s.slots, s.shard = []*pgserver.Server{server}, shards.Add(1)
	}
	for i := range replicas {
		s.replicas = append(s.replicas, newStruck(t, dir, i, s.shard, len(s.slots), s.own, x.tools))
	}
	s.lead()
	x.together(func(r *struck) error { return r.start(t.Context()) })
}

// together does something with every replica at once.
func (x *trial) together(do func(*struck) error) {
	errs := make([]error, len(x.servers.replicas))
	var wg sync.WaitGroup
	for i, r := range x.servers.replicas {
		wg.Go(func() { errs[i] = do(r) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		x.t.Fatal(err)
	}
}

// over reports whether there were faults and keys enough.
func (x *trial) over() bool {
	return x.struck.Load() >= int64(x.faults) && x.next.Load() >= int64(x.keys)*askers || x.t.Context().Err() != nil
}

const (
	callers = 128
	askers  = 2 // of each key, at about the same time
)

// tooFast reports whether there are far more keys than faults for them: each has to be judged.
func (x *trial) tooFast() bool {
	return x.servers.own && x.next.Load() > 2*askers*int64(x.keys)*(x.struck.Load()+int64(x.faults)/20)/int64(x.faults)
}

// strikeAndCall has callers ask while each replica, and the servers, meet one fault after the other.
func (x *trial) strikeAndCall() {
	var wg sync.WaitGroup
	x.lane(&wg, 1, nil, x.blowsOfServers(), 6*time.Second) // everybody feels those
	if x.servers.own {
		x.atMoments(&wg)
	}
	for i, r := range x.servers.replicas {
		x.lane(&wg, uint64(2+i), r, toReplicas, 500*time.Millisecond)
	}
	for i := range min(callers, x.keys) {
		rng := rand.New(rand.NewPCG(x.seed, uint64(100+i)))
		wg.Go(func() {
			for !x.over() {
				if x.tooFast() {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				n := int(x.next.Add(1) - 1)
				x.ask(n/askers, n%askers, rng)
			}
		})
	}
	for i, r := range x.servers.replicas {
		wg.Go(func() { // a person
			rng := rand.New(rand.NewPCG(x.seed, uint64(50+i)))
			for !x.over() {
				time.Sleep(between(rng, 100*time.Millisecond, 600*time.Millisecond))
				x.quiet.RLock()
				_, _ = x.settle(r, 4) // it may not answer
				x.quiet.RUnlock()
			}
		})
	}
	wg.Wait()
}

func (x *trial) blowsOfServers() []blow {
	if x.servers.own {
		return append(slices.Clone(toServers), toOwnServers...)
	}
	return toServers
}

// lane strikes one thing again and again.
func (x *trial) lane(wg *sync.WaitGroup, id uint64, r *struck, list []blow, pause time.Duration) {
	rng := rand.New(rand.NewPCG(x.seed, id))
	wg.Go(func() {
		for !x.over() && (x.servers.own || x.struck.Load() < int64(x.faults)) { // a slice is done soon
			b := pick(list, rng)
			x.calm.RLock()
			err := b.strike(x.t.Context(), x, r, rng)
			x.calm.RUnlock()
			if !x.counted(b.name, err) {
				return
			}
			time.Sleep(between(rng, pause/10, pause))
		}
	})
}

// counted counts a fault; false where it could not be made: then the trial is over.
func (x *trial) counted(name string, err error) bool {
	if err != nil {
		x.t.Errorf("%s: %v\n%s", name, err, x.servers.said())
		x.struck.Add(int64(x.faults)) // it cannot go on
		x.next.Add(int64(x.keys) * askers)
		return false
	}
	x.struck.Add(1)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counts[name]++
	return true
}

// makeWell lets every call come to its end: all goes again, a person settles what is in doubt, and every
// key is asked for once more.
func (x *trial) makeWell() {
	if x.t.Failed() {
		x.t.FailNow()
	}
	x.together(func(r *struck) error {
		r.heal()
		return r.start(x.t.Context())
	})
	r := x.servers.replicas[0]
	// An executor's call that is not EXECUTING has had no permit, and waits for who began it.
	for end := time.Now().Add(2 * time.Minute); ; {
		var left []string
		_, err := x.settle(r, last)
		// What never had a permit, and whose daemon gave up when no server answered.
		_, rerr := r.RecoverAll(x.t.Context())
		err = errors.Join(err, rerr)
		for o, terr := range r.Traces(x.t.Context(), wire.TracesQuery{}) {
			if err = errors.Join(err, terr); terr == nil && o.ToolName != "charge" && !(o.ToolName == "pay" && o.State != tga.Executing.String()) {
				left = append(left, fmt.Sprintf("%s %s %s held %v", o.TraceID, o.IdempotencyKey, o.State, o.Held))
			}
		}
		if err == nil && len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			x.t.Errorf("neither ended nor in doubt within two minutes: %v, %d traces, as %v", err, len(left), left[:min(20, len(left))])
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	x.asksAgain()
}

func (x *trial) asksAgain() {
	keys := x.keysAsked()
	var next atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		rng := rand.New(rand.NewPCG(x.seed, uint64(1000+i)))
		wg.Go(func() {
			for n := int(next.Add(1) - 1); n < len(keys); n = int(next.Add(1) - 1) {
				x.call(keys[n], -1, last, rng)
			}
		})
	}
	wg.Wait()
}

// keysAsked are all keys that somebody asked for.
func (x *trial) keysAsked() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	keys := slices.Clone(x.lone)
	for n := range (int(x.next.Load())-1)/askers + 1 {
		keys = append(keys, keyOf(n))
	}
	return keys
}

// judge holds what the tool server saw against what callers were told.
func (x *trial) judge() (o outcome) {
	t := x.t
	answered := x.history.answered()
	keys := x.keysAsked()
	for _, key := range keys {
		if _, ok := answered[key]; !ok {
			list := x.history.byKey[key]
			t.Errorf("%s has no answer, although all is well: %+v", key, list[max(0, len(list)-3):])
		}
	}
	late, wrong := x.judgeSends(answered)
	for _, bad := range wrong {
		t.Error(bad)
	}
	if most := x.struck.Load() / 500; int64(late) > most {
		t.Errorf("%d sends by processes that had just woken, at most %d are taken for the window between the question and the first byte", late, most)
	}
	disordered := x.history.disordered()
	for _, bad := range disordered {
		t.Errorf("the answers have no order: %s", bad)
	}
	v, err := x.servers.replicas[0].Verify(t.Context(), [16]byte{})
	if err != nil || !v.OK {
		t.Errorf("verify: %+v, %v", v, err)
	}
	o.Keys, o.Wrong, o.Late, o.Disordered, o.Unanswered = len(keys), len(wrong), late, len(disordered), len(keys)-len(answered)
	o.Verified, o.Traces, o.Entries = err == nil && v.OK, v.Traces, v.Entries
	o.Denials = len(x.tools.denied)
	for _, list := range x.tools.byKey {
		o.Sends += len(list)
		o.Again += len(list) - 1
	}
	return o
}

// judgeSends looks for sends that nothing licensed. late counts those that a process made which had just
// woken: between its question to the database and its first byte it stood still for longer than its
// lease, the window that SEMANTICS names.
func (x *trial) judgeSends(answered map[string]answer) (late int, bad []string) {
	x.tools.mu.Lock()
	defer x.tools.mu.Unlock()
	wrong := func(a arrival, format string, args ...any) {
		if a.replica != executor && x.servers.replicas[a.replica].woken(a.at) {
			late++
			return
		}
		bad = append(bad, fmt.Sprintf(format, args...))
	}
	for key, list := range x.tools.byKey {
		slices.SortFunc(list, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
		first, known := answered[key]
		seen := map[string]bool{}
		for i, a := range list {
			if i > 0 && a.tool != "charge" {
				wrong(a, "%s was sent without a licence: %v", key, list)
			}
			if seen[a.trace+a.attempt] {
				wrong(a, "%s: an attempt was sent twice: %v", key, list)
			}
			seen[a.trace+a.attempt] = true
			if known && a.at > first.at {
				wrong(a, "%s was sent at %s, and was answered %s at %s: %v", key, a.at, first.value, first.at, list)
			}
			if at, denied := x.tools.denied[a.trace]; denied {
				wrong(a, "%s: a person looked at %s, saw no send of trace %s, and then it was sent: %v", key, at, a.trace, list)
			}
		}
	}
	for key, a := range answered {
		if !slices.ContainsFunc(x.tools.byKey[key], func(b arrival) bool { return b.value() == a.value && b.at < a.at }) {
			bad = append(bad, fmt.Sprintf("%s was answered %s, and the tool knows nothing of it: %v", key, a.value, x.tools.byKey[key]))
		}
	}
	return late, bad
}
