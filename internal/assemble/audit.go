package assemble

import (
	"crypto/tls"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/audit"
	"github.com/tgad/tgad/internal/audit/deliver"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/schemas/tga"
)

// auditDir has the cursors of deliveries, in the directory of the store.
const auditDir = "audit"

// Audit returns what is delivered of the log of the store in a directory, and where to.
func Audit(c *config.Config, store, version string, clock func() time.Time, log *slog.Logger) (all []deliver.Options, err error) {
	if len(c.Audits) == 0 {
		return nil, nil
	}
	if err := access.MkdirDurable(filepath.Join(store, auditDir)); err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "audit: %w", err)
	}
	for i := range c.Audits {
		a := &c.Audits[i]
		sink, err := auditSink(c, a, store, clock)
		if err == nil {
			err = audit.Known(a.Format)
		}
		if err != nil {
			return nil, tga.Errorf(tga.ValidationError, "audit %s: %w", a.ID, err)
		}
		all = append(all, deliver.Options{
			ID: a.ID, Format: a.Format, Version: version, Sink: sink, Cursor: filepath.Join(store, auditDir, a.ID),
			Newest: a.Begin == config.Newest, Logger: log,
		})
	}
	return all, nil
}

// auditSink makes what takes the records of one delivery.
func auditSink(c *config.Config, a *config.Audit, store string, clock func() time.Time) (deliver.Sink, error) {
	trusted, err := verify.Trusting(c.Path(a.CAFile))
	if err != nil {
		return nil, err
	}
	switch a.Type {
	case config.File:
		path := c.Path(a.Path)
		if access.Within(path, store) {
			return nil, tga.Errorf(tga.ValidationError, "the file %s lies in the store. Put it elsewhere", path)
		}
		return &deliver.File{Path: path, MaxBytes: a.RotateBytes.N, Period: a.RotateEvery.D, Keep: a.Keep, Clock: clock}, nil
	case config.Syslog:
		network, address := a.Syslog()
		return &deliver.Syslog{Network: network, Address: address, TLS: trusted}, nil
	default:
		return webhook(deliver.Webhook{ID: a.ID, URL: a.URL, SecretFile: c.Path(a.SecretFile), HeadersFile: c.Path(a.HeadersFile), Format: a.Format, Clock: clock}, trusted)
	}
}

// webhook makes a webhook whose secrets are there: said now, and not when the first message comes.
func webhook(w deliver.Webhook, trusted *tls.Config) (*deliver.Webhook, error) {
	if _, err := deliver.Secrets(w.SecretFile); err != nil {
		return nil, err
	}
	return deliver.NewWebhook(w, trusted), nil
}
