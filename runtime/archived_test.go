package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestArchivedKeysAreKnownWithoutTheIndex archives every trace, deletes the index and calls with
// every key again. Each call gets its recorded answer, and nothing reaches the tool server.
func TestArchivedKeysAreKnownWithoutTheIndex(t *testing.T) {
	b := setup(t, park)
	b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
		if n%3 == 0 {
			return runtime.Reply{Status: tga.StatusFailure, ErrorMessage: fmt.Sprint("refused ", n)}, nil
		}
		return ok(fmt.Sprintf(`{"charge":%d}`, n)), nil
	}
	const calls = 30
	var first []runtime.Result
	for i := range calls {
		first = append(first, b.mustCall(charge(fmt.Sprint("key-", i))))
	}
	b.advance(time.Hour)
	if done, err := b.db.SealTraces(t.Context(), tga.MillisOf(b.clock())); err != nil || done.Traces != calls {
		t.Fatalf("%+v %v", done, err)
	}
	b.close()
	if err := os.RemoveAll(filepath.Join(b.dir, "index")); err != nil {
		t.Fatal(err)
	}
	b.open()
	for i, was := range first {
		is := b.mustCall(charge(fmt.Sprint("key-", i)))
		if is.ServedFrom != was.TraceID || string(is.Value) != string(was.Value) || is.Status != was.Status || is.ErrorMessage != was.ErrorMessage {
			t.Errorf("key %d: %+v, was %+v", i, is, was)
		}
	}
	b.wantSends(calls)
}

// TestArchivedCallLeavesItsList: a call without a key whose answer was not delivered is archived. Another client takes
// it over all the same, and once the answer was delivered the same call is a new call.
func TestArchivedCallLeavesItsList(t *testing.T) {
	p := park
	p.RepeatWindow = 24 * time.Hour
	c := withClients(t, p)
	c.come("A")
	c.come("B")
	first := c.beginAs("A")
	c.answer(first)
	c.die("A")
	if n := c.archive(); n != 1 {
		t.Fatalf("%d traces are archived", n)
	}
	for range 2 {
		again := c.beginAs("B")
		if c.wantStanding(again, runtime.BeginServe); again.Result.TraceID != first.Result.TraceID || string(again.Result.Value) != `"paid"` {
			t.Errorf("%+v", again.Result)
		}
		c.reopen()
	}
	c.deliver(first)
	c.wantStanding(c.beginAs("B"), runtime.BeginSend)
}

// TestQuestionKeepsItsTraceOutOfTheArchive: people are asked about a record whose changes no longer stand. Its trace is
// not archived before they have answered, so that they can.
func TestQuestionKeepsItsTraceOutOfTheArchive(t *testing.T) {
	p := park
	p.Replay = runtime.ReplayHuman
	b, w := changing(t, p)
	origin := b.mustCall(charge("k"))
	w.finds["a"] = runtime.Gone
	waits, err := b.call(replay("k"))
	wantCode(t, err, tga.ConfirmationRequired)
	b.archive()
	if _, err := b.rt.Decide(t.Context(), origin.TraceID, yes); err != nil {
		t.Fatal(err)
	}
	if res := b.wantState(waits.TraceID, tga.Completed); res.ServedFrom != origin.TraceID {
		t.Errorf("%+v", res)
	}
	if n := b.archive(); n != 2 {
		t.Errorf("%d traces are archived after the answer", n)
	}
}

// TestArchivedRecordIsConfirmed: the changes of a record in an archive are verified like all others. The archive takes
// no note of it, and no question to people: in mode human, a mismatch counts as in mode strict.
func TestArchivedRecordIsConfirmed(t *testing.T) {
	for mode, served := range map[runtime.ReplayMode]bool{runtime.ReplayStrict: false, runtime.ReplayHuman: false, runtime.ReplayWarn: true} {
		p := park
		p.Replay, p.ConfirmAll = mode, true
		b, w := changing(t, p)
		origin := b.mustCall(charge("k"))
		b.archive()
		res, err := b.call(charge("k"))
		if err != nil || res.ServedFrom != origin.TraceID || res.Confirmation == nil || res.Confirmation.Checked != 2 {
			t.Errorf("%v, all changes stand: %+v, %v", mode, res, err)
		}
		w.finds["a"] = runtime.Gone
		if res, err = b.call(charge("k")); served != (err == nil) || err != nil && tga.CodeOf(err) != tga.ConfirmationMismatch {
			t.Errorf("%v, a change is gone: %+v, %v", mode, res, err)
		}
		for o := range b.db.OpenTraces(t.Context()) {
			t.Errorf("%v: trace %s is open", mode, o.TraceID)
		}
		b.wantSends(1)
	}
}
