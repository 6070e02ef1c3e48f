package emit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
)

// Sink takes events. Write is called by one goroutine at a time.
type Sink interface {
	// Write sends one event, or gives up when ctx ends.
	Write(ctx context.Context, e Event) error
	Close() error
}

// QueueLength is how many events may wait for a sink. Events are dropped while the queue is full.
const QueueLength = 1024

// queue decouples turns from a sink, which may be slow or stuck.
type queue struct {
	sink Sink
	log  *slog.Logger
	done chan struct{}
	stop context.CancelFunc

	sent, failed, dropped atomic.Uint64

	mu     sync.Mutex
	ended  bool
	events chan Event
}

func newQueue(s Sink, log *slog.Logger) *queue {
	ctx, stop := context.WithCancel(context.Background())
	q := &queue{sink: s, log: log, done: make(chan struct{}), stop: stop, events: make(chan Event, QueueLength)}
	go q.run(ctx)
	return q
}

// put queues an event, or drops it.
func (q *queue) put(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		q.dropped.Add(1)
		return
	}
	select {
	case q.events <- e:
	default:
		q.dropped.Add(1)
	}
}

func (q *queue) run(ctx context.Context) {
	defer close(q.done)
	working := true
	for e := range q.events {
		if ctx.Err() != nil {
			q.dropped.Add(1)
			continue
		}
		err := q.write(ctx, e)
		if err == nil {
			q.sent.Add(1)
			if !working {
				q.log.Info("events are sent again", "dropped", q.dropped.Load(), "failed", q.failed.Load())
			}
		} else if q.failed.Add(1); working {
			// Log only the first failure in a row: a sink that is gone would fill the log.
			q.log.Warn("event not sent", "id", e.ID, "error", err.Error())
		}
		working = err == nil
	}
}

func (q *queue) write(ctx context.Context, e Event) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return q.sink.Write(ctx, e)
}

func (q *queue) counts() SinkCounts {
	return SinkCounts{Sent: q.sent.Load(), Failed: q.failed.Load(), Dropped: q.dropped.Load()}
}

// end stops accepting events.
func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.ended = true
		close(q.events)
	}
}

// wait lets the queue drain until ctx ends, then drops the rest, and closes the sink. If a Write
// ignores its context, wait returns without closing the sink.
func (q *queue) wait(ctx context.Context) error {
	defer q.stop()
	select {
	case <-q.done:
	case <-ctx.Done():
		q.stop()
		select {
		case <-q.done:
		default:
			return fmt.Errorf("emit: a sink does not end: %w", context.Cause(ctx))
		}
	}
	return q.sink.Close()
}
