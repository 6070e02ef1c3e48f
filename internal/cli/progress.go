package cli

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tgad/tgad/runtime/client"
)

// progressPause is how often a line of progress is written anew.
const progressPause = 500 * time.Millisecond

// Watch shows the progress of long work on stderr until stop is called, if stderr is a terminal or
// --progress was given, and never with --json. how returns the progress as text; "" shows nothing.
// On a terminal one line is overwritten; elsewhere each change is a new line.
func (s *Streams) Watch(ctx context.Context, how func(context.Context) string) (stop func()) {
	terminal := isTerminal(s.Err)
	if s.JSON || !terminal && !s.Progress {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	outlived := func() {}
	if _, file := s.Err.(*os.File); file {
		outlived = OutliveReaders()
	}
	var over sync.WaitGroup
	over.Go(func() {
		tick := time.NewTicker(progressPause)
		defer tick.Stop()
		// Progress is a convenience: after a failed write to stderr no more is shown, and the
		// work goes on.
		taken := func(text string) bool {
			_, err := fmt.Fprint(s.Err, text)
			return err == nil
		}
		last := ""
		for {
			select {
			case <-ctx.Done():
				if terminal && last != "" {
					taken("\r\x1b[K") // what it said is over
				}
				return
			case <-tick.C:
			}
			now := Clean(how(ctx))
			if now == last || now == "" {
				continue
			}
			last = now
			line := now + "\n"
			if terminal {
				line = "\r\x1b[K" + now
			}
			if !taken(line) {
				return
			}
		}
	})
	return func() {
		cancel()
		over.Wait()
		outlived()
	}
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// Working returns a function that says how far the daemon is with the work what.
func Working(c *client.Client, what string) func(context.Context) string {
	return func(ctx context.Context) string {
		all, err := c.Working(ctx)
		if err != nil {
			return "" // the work itself says what is wrong
		}
		for _, w := range all {
			if w.What == what {
				return checked(what, w.Traces, w.Entries)
			}
		}
		return ""
	}
}

func checked(what string, traces, entries int64) string {
	return fmt.Sprintf("%s: %d traces, %d entries checked", what, traces, entries)
}
