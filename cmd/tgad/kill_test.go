package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tgad/tgad/internal/payments/journal"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// callers is the number of concurrent callers while the daemon is killed.
const callers = 16

// TestKilledDaemonNeverChargesTwice kills the daemon with SIGKILL at random moments under concurrent
// callers. The tool server's own journal is the witness. $TGAD_KILLS is the number of kills, $TGAD_SEED the
// seed of their moments.
func TestKilledDaemonNeverChargesTwice(t *testing.T) {
	kills, seed := fromEnv(t, "TGAD_KILLS", 10), uint64(fromEnv(t, "TGAD_SEED", int(time.Now().UnixNano()%1e9)))
	t.Logf("TGAD_KILLS=%d TGAD_SEED=%d", kills, seed)
	p := newProcess(t)
	p.start()
	killWhileCalled(t, p, kills, seed).check(t, p)
}

// killWhileCalled kills a daemon again and again while callers call it, and returns what they were told.
func killWhileCalled(t *testing.T, p *process, kills int, seed uint64) *told {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	all := &told{acknowledged: map[journal.Call][]byte{}, asked: map[journal.Call]runtime.Request{}}
	var wg sync.WaitGroup
	for n := range callers {
		wg.Go(func() { all.keepCalling(ctx, t, p, rand.New(rand.NewPCG(seed, uint64(n+1)))) })
	}
	moments := rand.New(rand.NewPCG(seed, 0))
	for i := range kills {
		if i%2 == 0 {
			p.awaitCall()
		}
		time.Sleep(time.Duration(moments.Int64N(int64(80 * time.Millisecond))))
		p.end(syscall.SIGKILL)
		p.start()
	}
	stop()
	wg.Wait()
	return all
}

// awaitCall waits until a call reaches the tool server. A slow machine may take longer to start a call than
// the time between two kills; then no kill would hit a call.
func (p *process) awaitCall() {
	p.t.Helper()
	size := func() int64 {
		info, err := os.Stat(p.journal)
		if err != nil {
			return 0 // no call was made yet
		}
		return info.Size()
	}
	before := size()
	for end := time.Now().Add(20 * time.Second); size() == before && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// told is what the callers were told.
type told struct {
	mu           sync.Mutex
	asked        map[journal.Call]runtime.Request
	acknowledged map[journal.Call][]byte
}

// keepCalling makes one call after the other, and repeats each until it has an answer or is in doubt.
func (o *told) keepCalling(ctx context.Context, t *testing.T, p *process, r *rand.Rand) {
	for ctx.Err() == nil {
		req := runtime.Request{
			Server: "payments", Tool: []string{"charge", "charge_opaque"}[r.IntN(2)], Key: uuid.NewString(),
			Args: []byte(fmt.Sprintf(`{"account":"a%d","amount":%d,"delay_ms":%d}`, r.IntN(8), 1+r.IntN(1000), r.IntN(4))),
		}
		name := journal.Call{Tool: req.Tool, Key: req.Key}
		o.mu.Lock()
		o.asked[name] = req
		o.mu.Unlock()
		for ctx.Err() == nil {
			if r.IntN(2) == 0 {
				req.TraceID = tga.ID(uuid.Must(uuid.NewV7())) // a new trace under the same key
			}
			res, err := p.call(ctx, req)
			if err == nil && res.State == tga.Completed {
				o.mu.Lock()
				o.acknowledged[name] = res.Value
				o.mu.Unlock()
				break
			}
			if errors.Is(err, tga.EffectInDoubt) || res.ErrorCode == tga.EffectInDoubt {
				break
			}
			if err == nil {
				t.Errorf("key %s: state %s, %s %s", req.Key, res.State, res.ErrorCode, res.ErrorMessage)
				return
			}
			if !mayRetry(err) {
				t.Errorf("key %s: %v", req.Key, err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func (p *process) call(ctx context.Context, req runtime.Request) (runtime.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return p.client.Call(ctx, req)
}

// mayRetry reports whether the same request may succeed later: nobody answers, or the request waits for
// something that is not done yet.
func mayRetry(err error) bool {
	info, ok := tga.CodeOf(err).Info()
	return ok && info.Retryable
}

// check repeats every call and compares the answers with the earlier ones, with the journal, and with the
// list of calls in doubt.
func (o *told) check(t *testing.T, p *process) {
	ctx := context.Background()
	during := p.witness().Total()
	// The recovery of the last start may still send.
	for name, req := range o.asked {
		if _, ok := o.acknowledged[name]; !ok {
			req.TraceID = tga.ID{}
			if _, err := p.call(ctx, req); err != nil && !errors.Is(err, tga.EffectInDoubt) {
				t.Errorf("%v, at the end: %v", name, err)
			}
		}
	}
	before := p.witness()
	listed := map[string]bool{}
	list, err := p.client.InDoubt(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		listed[d.IdempotencyKey] = true
	}
	completed, doubtful := 0, 0
	for name, req := range o.asked {
		req.TraceID = tga.ID{}
		res, err := p.call(ctx, req)
		count := before.Count(name)
		if count.Charges > 1 {
			t.Errorf("%v was charged %d times", name, count.Charges)
		}
		value, acknowledged := o.acknowledged[name]
		switch {
		case err == nil && res.State == tga.Completed:
			completed++
			if count.Charges != 1 {
				t.Errorf("%v is completed with %d charges", name, count.Charges)
			}
			if acknowledged && string(res.Value) != string(value) {
				t.Errorf("%v: the acknowledged answer was %s, now it is %s", name, value, res.Value)
			}
		case errors.Is(err, tga.EffectInDoubt) || res.ErrorCode == tga.EffectInDoubt:
			doubtful++
			if acknowledged {
				t.Errorf("%v was acknowledged and is in doubt", name)
			}
			if !listed[name.Key] {
				t.Errorf("%v is in doubt and not listed", name)
			}
			if name.Tool == "charge" {
				t.Errorf("%v honours keys and is in doubt: %v", name, err)
			}
			if count.Received > 1 {
				t.Errorf("%v is in doubt and reached the tool server %d times", name, count.Received)
			}
		default:
			t.Errorf("%v: state %s, %v", name, res.State, err)
		}
	}
	if after := p.witness().Total(); after != before.Total() {
		t.Errorf("asking again reached the tool server: %+v, then %+v", before.Total(), after)
	}
	if out, code := p.run("verify"); code != 0 {
		t.Errorf("verify of the open store: exit code %d\n%s", code, out)
	}
	p.end(syscall.SIGTERM)
	out, code := p.run("verify", p.data)
	if code != 0 {
		t.Errorf("verify of the closed store: exit code %d\n%s", code, out)
	}
	total := before.Total()
	t.Logf("%d calls: %d completed (%d acknowledged during the kills), %d in doubt and listed; journal: %d received, %d charged, %d answered again, %d double; %s",
		len(o.asked), completed, len(o.acknowledged), doubtful, total.Received, total.Charges, total.Repeated, before.Report().Double, out)
	if during.Received == 0 || completed == 0 {
		t.Error("nothing was called during the kills: the test shows nothing")
	}
}

func fromEnv(t *testing.T, name string, value int) int {
	t.Helper()
	if s := os.Getenv(name); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	return value
}
