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
//
// The signal is caught, not ignored: a process that is started with an ignored signal
// keeps it ignored, and tool servers want theirs.
func OutliveHangup(log *slog.Logger) (stop func()) {
	caught, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(caught, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-caught:
				log.Warn("SIGHUP is ignored: files are read at the start; stop the process with SIGTERM and start it again")
			case <-over:
				return
			}
		}
	}()
	return func() {
		signal.Stop(caught)
		close(over)
	}
}
