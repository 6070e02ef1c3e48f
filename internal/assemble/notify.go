package assemble

import (
	"log/slog"
	"time"

	"github.com/tgad/tgad/internal/audit/deliver"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/duty"
	"github.com/tgad/tgad/internal/notice"
	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/schemas/tga"
)

// Notify returns the receivers of notices about what waits for people. duties are those of the store.
func Notify(c *config.Config, duties func(name string) duty.Duty, clock func() time.Time, log *slog.Logger) (all []notice.Receiver, err error) {
	for _, n := range c.Notify {
		sink, err := notifySink(c, &n, clock, log)
		if err != nil {
			return nil, tga.Errorf(tga.ValidationError, "notify %s: %w", n.ID, err)
		}
		all = append(all, notice.Receiver{Conf: n, Sink: sink, Duty: duties(NotifyDuty + n.ID)})
	}
	return all, nil
}

// notifySink makes the sink of one receiver.
func notifySink(c *config.Config, n *config.Notify, clock func() time.Time, log *slog.Logger) (notice.Sink, error) {
	if n.Type == config.Command {
		return notice.Command{Argv: n.Command, Logger: log.With("notify", n.ID)}, nil
	}
	trusted, err := verify.Trusting(c.Path(n.CAFile))
	if err != nil {
		return nil, err
	}
	w, err := webhook(deliver.Webhook{ID: n.ID, URL: n.URL, SecretFile: c.Path(n.SecretFile), HeadersFile: c.Path(n.HeadersFile), Clock: clock}, trusted)
	return notice.Webhook{Webhook: w}, err
}
