package assemble

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/audit/deliver"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/notice"
	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/schemas/tga"
)

// notifyDir has what receivers were told, in the directory of the store.
const notifyDir = "notify"

// Notify returns who is told of what waits for people at the store in a directory.
func Notify(c *config.Config, store string, clock func() time.Time, log *slog.Logger) (all []notice.Receiver, err error) {
	if len(c.Notify) == 0 {
		return nil, nil
	}
	if err := access.MkdirDurable(filepath.Join(store, notifyDir)); err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "notify: %w", err)
	}
	for _, n := range c.Notify {
		sink, err := notifySink(c, &n, clock, log)
		if err != nil {
			return nil, tga.Errorf(tga.ValidationError, "notify %s: %w", n.ID, err)
		}
		all = append(all, notice.Receiver{Conf: n, Sink: sink, Book: filepath.Join(store, notifyDir, n.ID)})
	}
	return all, nil
}

// notifySink makes what takes the notices of one receiver.
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
