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

// Service tells receivers of what waits in a world.
type Service struct {
	world World
	say   *slog.Logger
	all   []*receiver
	clock *clock.Clock
	every time.Duration // between two looks

	seen  atomic.Pointer[[]Matter] // the newest look; nil where this process tells nobody
	heard atomic.Bool              // something came since that look began
}

// Times of a service.
const (
	lookEvery = time.Second
	lookShare = 50 // a look takes one in so many parts of one processor,
	soonShare = 5  // and one in so many where somebody is to be told something now, or something came
)

// New makes a service. Nothing is told before [Service.Run].
func New(world World, to []Receiver, now func() time.Time, log *slog.Logger) *Service {
	s := &Service{world: world, say: log, clock: clock.New(now, nil), every: lookEvery}
	host, err := os.Hostname()
	if err != nil {
		host = "" // a notice says less
	}
	for _, to := range to {
		r := &receiver{conf: to.Conf, sink: to.Sink, duty: to.Duty, world: world, clock: s.clock, host: host, say: log.With("notify", to.Conf.ID)}
		r.stats.ID, r.stats.Type = to.Conf.ID, to.Conf.Type
		s.all = append(s.all, r)
	}
	return s
}

// Run looks and tells until ctx ends, and closes the sinks.
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
				default: // it has not seen the one before, and will see this one
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

// Hear says that something new waits: the next look comes soon. It may be called by any goroutine.
func (s *Service) Hear() { s.heard.Store(true) }

// rest waits until the next look is due, after one that took so long. In a store with many calls in doubt a look
// takes seconds: nobody is to hear of them minutes later because two looks are needed to tell what lasts.
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

// look keeps what waits now, where this process tells anybody. Where that cannot be read, what was seen before stays:
// nothing is taken for settled.
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

// Test gives each receiver a notice that says it is a test. The errors are those of the receivers, in the
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
