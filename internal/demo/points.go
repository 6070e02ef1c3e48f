//go:build unix

package demo

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// trigger says what a kill waits for. The crash windows are between durable writes, and the
// shortest takes microseconds. Kills at random times alone would hit the same long windows
// again and again.
type trigger string

const (
	asked     trigger = "asked"     // the request is on its way to the daemon
	pending   trigger = "pending"   // a request that needs approval is in the log
	queued    trigger = "queued"    // a second call waits for the first one's key
	executing trigger = "executing" // the attempt is in the log
	received  trigger = "received"  // the tool server's journal says the call came in
	charged   trigger = "charged"   // the tool server's journal says money moved
	recorded  trigger = "recorded"  // the effect is in the log
	anytime   trigger = "any time"  // a random time after the request was made
)

// triggers are those that a plan uses, and how long after each a kill may come. A trigger
// aims at a window but may miss it: the log says which window was hit.
var triggers = []struct {
	on   trigger
	upTo time.Duration
}{
	{executing, think},              // W4: sent, nothing done yet
	{charged, answerAfter},          // W4: done, not answered
	{asked, 50 * time.Microsecond},  // W0
	{recorded, time.Millisecond},    // W5
	{pending, 2 * time.Millisecond}, // W1
	{anytime, think + answerAfter},
	{received, time.Millisecond}, // W4
	{queued, think},              // W2 beside a W4
	{asked, 400 * time.Microsecond},
	{anytime, think + answerAfter},
}

// point is one kill.
type point struct {
	N     int
	On    trigger
	After time.Duration // between the trigger and the kill
}

func (p point) String() string {
	if p.On == anytime {
		return fmt.Sprintf("after %s", millis(p.After))
	}
	return fmt.Sprintf("%s +%s", p.On, millis(p.After))
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

// plan draws n points. The same seed gives the same plan.
func plan(seed uint64, tool string, n int) []point {
	salt := uint64(0)
	for _, c := range []byte(tool) {
		salt = salt*31 + uint64(c)
	}
	r := rand.New(rand.NewPCG(seed, salt))
	all := make([]point, n)
	for i := range all {
		t := triggers[i%len(triggers)]
		all[i] = point{On: t.on, After: time.Duration(r.Int64N(int64(t.upTo)))}
	}
	r.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i := range all {
		all[i].N = i + 1
	}
	return all
}
