package cli

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// OutliveHangup keeps SIGHUP from ending a process that reads its files at its start alone: by
// default it ends a process at once, and the call that is under way would be in doubt. The log
// says that nothing is read again.
func OutliveHangup(log *slog.Logger) (stop func()) {
	return heedHangups(catchHangups(), func() {
		log.Warn("SIGHUP is ignored: files are read at the start; stop the process with SIGTERM and start it again")
	})
}

// catchHangups has SIGHUP kept for [heedHangups]: none ends the process from here on.
//
// The signal is caught, not ignored: a process that is started with an ignored signal
// keeps it ignored, and tool servers want theirs.
func catchHangups() chan os.Signal {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	return caught
}

// heedHangups does something for each signal that was caught, and for each that comes, until it is stopped; then it has
// returned.
func heedHangups(caught chan os.Signal, do func()) (stop func()) {
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case <-caught:
				do()
			case <-over:
				return
			}
		}
	}()
	return func() {
		signal.Stop(caught)
		close(over)
		<-gone
	}
}
