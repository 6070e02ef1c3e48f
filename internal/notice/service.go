package notice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/clock"
	"github.com/tgad/tgad/schemas/tga"
)

// Service sends receivers notices of what waits in a world.
type Service struct {
	world World
	say   *slog.Logger
	all   []*receiver
	clock *clock.Clock
	every time.Duration // between two looks

	seen  atomic.Pointer[[]Matter] // the newest look; nil if this process is on duty for no receiver
	heard atomic.Bool              // Hear was called since that look began
}

// Times of a service.
const (
	lookEvery = time.Second
	lookShare = 50 // looks take at most 1/lookShare of one processor,
	soonShare = 5  // and at most 1/soonShare if a matter is due now, or Hear was called
)

// New makes a service. It sends nothing before [Service.Run].
func New(world World, to []Receiver, now func() time.Time, log *slog.Logger) *Service {
	s := &Service{world: world, say: log, clock: clock.New(now, nil), every: lookEvery}
	host, err := os.Hostname()
	if err != nil {
		host = "" // notices then do not name the machine
	}
	for _, to := range to {
		r := &receiver{conf: to.Conf, sink: to.Sink, duty: to.Duty, world: world, clock: s.clock, host: host, say: log.With("notify", to.Conf.ID)}
		r.stats.ID, r.stats.Type = to.Conf.ID, to.Conf.Type
		s.all = append(s.all, r)
	}
	return s
}

// Run looks at the world and sends notices until ctx ends. Then it closes the sinks.
func (s *Service) Run(ctx context.Context) error {
	if len(s.all) == 0 {
		return nil
	}
	var running sync.WaitGroup
	for _, r := range s.all {
		running.Go(func() { r.take(ctx) })
	}
	running.Wait()
	wake := make([]chan struct{}, len(s.all))
	for i, r := range s.all {
		wake[i] = make(chan struct{}, 1)
		running.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-wake[i]:
					r.take(ctx)
					if seen := s.seen.Load(); seen != nil && r.mine.Load() {
						r.turn(ctx, *seen)
					}
				}
			}
		})
	}
	trouble := ""
	for ctx.Err() == nil {
		began := time.Now()
		s.heard.Store(false)
		err := s.look(ctx)
		if err == nil {
			for _, w := range wake {
				select {
				case w <- struct{}{}:
				default: // it was woken already, and will see this look
				}
			}
		} else if text := err.Error(); text != trouble && ctx.Err() == nil {
			s.say.Error("it cannot be read what waits for people, so nobody is told", "error", err)
			trouble = text
		}
		if err == nil {
			trouble = ""
		}
		s.rest(ctx, time.Since(began))
	}
	running.Wait()
	errs := make([]error, len(s.all))
	for i, r := range s.all {
		errs[i] = errors.Join(r.leave(), r.sink.Close())
	}
	return errors.Join(errs...)
}

// Hear makes the next look come soon, because something new waits. Any goroutine may call it.
func (s *Service) Hear() { s.heard.Store(true) }

// rest waits until the next look is due, after one that took the given time. In a store with many calls in doubt
// a look takes seconds. Two looks are needed to see that a matter lasts, so without soonShare its notice would come
// minutes later.
func (s *Service) rest(ctx context.Context, took time.Duration) {
	for ended := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.every):
		}
		due := s.heard.Load() || slices.ContainsFunc(s.all, (*receiver).isDue)
		if since := time.Since(ended); since >= lookShare*took || due && since >= soonShare*took {
			return
		}
	}
}

// look reads what waits now, if this process is on duty for a receiver. If that fails, the result of the look before
// stays, so no matter counts as settled.
func (s *Service) look(ctx context.Context) error {
	if !slices.ContainsFunc(s.all, func(r *receiver) bool { return r.mine.Load() }) {
		s.seen.Store(nil)
		return nil
	}
	all, err := s.world.Waiting(ctx)
	if err == nil {
		s.seen.Store(&all)
	}
	return err
}

// Stats are those of each receiver.
func (s *Service) Stats() []Stats {
	all := make([]Stats, len(s.all))
	for i, r := range s.all {
		all[i] = r.now()
	}
	return all
}

// Test sends each receiver a notice that says it is a test. The errors are those of the receivers, in the
// order of [Service.Stats].
func (s *Service) Test(ctx context.Context, who string) []error {
	errs := make([]error, len(s.all))
	now := tga.MillisOf(s.clock.Now())
	var running sync.WaitGroup
	for i, r := range s.all {
		running.Go(func() {
			n := &Notice{
				Type: TypeTest, ID: fmt.Sprintf("%s-test-%d", r.conf.ID, now), Time: now, Receiver: r.conf.ID, Host: r.host,
				Subject: headline(r.host) + "a test", Matters: []Matter{},
				Text: "This is a test, which " + short(who) + " asked for. A notice of what waits for people comes the same way.\n",
			}
			errs[i] = r.put(ctx, n)
		})
	}
	running.Wait()
	return errs
}
