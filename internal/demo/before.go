//go:build unix

package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/payments/journal"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// withoutTgad is part 1: what happens without tgad.
func (s *show) withoutTgad(ctx context.Context) error {
	s.title("Without tgad: the caller dies after the charge, and is run again")
	dir := filepath.Join(s.dir, "without")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	path := filepath.Join(dir, "payments.journal")
	charges := func() uint64 {
		sum, err := journal.Read(path)
		if err != nil {
			return 0 // the server has not made it yet
		}
		return sum.Total().Charges
	}
	// The first run is killed between the charge and the answer.
	first := s.stockCaller(ctx, path, 2*time.Second)
	if err := first.Start(); err != nil {
		return err
	}
	until := time.Now().Add(10 * time.Second)
	for charges() == 0 && time.Now().Before(until) {
		time.Sleep(time.Millisecond)
	}
	if err := first.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = first.Wait() // it was killed
	s.step("caller", "kill -9 after the charge, before its answer")
	second := s.stockCaller(ctx, path, 0)
	out, err := second.Output()
	if err != nil {
		return fmt.Errorf("the caller without tgad: %w", err)
	}
	s.step("caller", "run again: %s", bytes.TrimSpace(out))
	n := charges()
	s.step("journal", "%d charges for one order", n)
	s.claim(n == 2, "one order was charged twice", "%d charges", n)
	return nil
}

func (s *show) stockCaller(ctx context.Context, journal string, delay time.Duration) *exec.Cmd {
	args := fmt.Sprintf(`{"account":"acme","amount":4200,"delay_ms":%d}`, delay.Milliseconds())
	return exec.CommandContext(ctx, s.Lab, "caller", "--journal", journal, "--args", args)
}

// order is the key of the call in parts 2 and 4.
const order = "order-4711"

// throughTgad is part 2: the same with the daemon in between.
func (s *show) throughTgad(ctx context.Context) error {
	s.title("Through tgad: the daemon dies after the charge, and is started again")
	w := s.charge
	if err := w.start(ctx); err != nil {
		return err
	}
	trace := newID()
	type result struct {
		out  string
		code int
		err  error
	}
	done := make(chan result, 1)
	go func() {
		out, code, err := w.command(ctx, "call", "payments", "charge", orderArgs(4200, 60*time.Millisecond),
			"--key", order, "--trace", trace.String(), "--reconnect", "30s")
		done <- result{out, code, err}
	}()
	s.step("caller", "tgad call payments charge --key %s --reconnect 30s", order)
	if !w.awaitJournal(ctx, "charge", order, func(c journal.Count) bool { return c.Charges > 0 }) {
		return fmt.Errorf("the charge never came: %w", ctx.Err())
	}
	if err := w.kill(); err != nil {
		return err
	}
	window, err := w.window(ctx, trace)
	if err != nil {
		return err
	}
	s.step("daemon", "kill -9 after the charge, before its answer\nits log: %s, %s", window, windowText(window))
	start := time.Now()
	if err := w.start(ctx); err != nil {
		return err
	}
	s.step("daemon", "started again, ready after %d ms", time.Since(start).Milliseconds())
	r := <-done
	if r.err != nil {
		return r.err
	}
	said, _, _ := strings.Cut(r.out, "\n")
	s.step("caller", "%s", answer([]byte(said)))
	count, err := w.charges("charge", order)
	if err != nil {
		return err
	}
	s.step("journal", "received %d times, charged %d, answered again %d", count.Received, count.Charges, count.Repeated)
	s.claim(count.Charges == 1, "one order was charged once", "%d charges", count.Charges)
	s.claim(r.code == 0, "the answer reached the caller that had been waiting", "exit code %d", r.code)
	return nil
}

func orderArgs(amount int, delay time.Duration) string {
	return fmt.Sprintf(`{"account":"acme","amount":%d,"delay_ms":%d}`, amount, delay.Milliseconds())
}

func windowText(name string) string {
	for _, w := range windows {
		if w.name == name {
			return w.text
		}
	}
	return ""
}

// sameKey is part 4: a key stands for one call for ever.
func (s *show) sameKey(ctx context.Context) error {
	s.title("The same key again")
	w := s.charge
	before, err := w.witness()
	if err != nil {
		return err
	}
	again := runtime.Request{Server: "payments", Tool: "charge", Args: []byte(orderArgs(4200, 60*time.Millisecond)), Key: order}
	res, err := w.client.Call(ctx, again)
	if err != nil {
		return err
	}
	s.step("caller", "key %s again: %s", order, answer(res.Value))
	s.step("tgad", "served from trace %s", res.ServedFrom)
	other := again
	other.Args = []byte(orderArgs(9900, 60*time.Millisecond))
	_, refused := w.client.Call(ctx, other)
	s.step("caller", "the key with another amount: %s", tga.CodeOf(refused))
	after, err := w.witness()
	if err != nil {
		return err
	}
	s.step("journal", "%d calls received before, %d after", before.Total().Received, after.Total().Received)
	s.claim(res.State == tga.Completed && !res.ServedFrom.IsZero(), "a repeat is served from the ledger", "state %s", res.State)
	s.claim(before.Total() == after.Total(), "the tool server was not called", "%+v, then %+v", before.Total(), after.Total())
	s.claim(errors.Is(refused, tga.IdempotencyKeyConflict), "another amount under the same key is refused", "%v", refused)
	return nil
}
