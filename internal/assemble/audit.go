package assemble

import (
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/audit"
	"github.com/tgad/tgad/internal/audit/deliver"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/duty"
	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/schemas/tga"
)

// Prefixes of the names of a store's duties. The id of the delivery, or of the receiver, follows. In the directory of a store
// the duties are files with these names.
const (
	AuditDuty  = "audit/"
	NotifyDuty = "notify/"
)

// Audit returns the options of the deliveries of audit records. store is the directory of the store, "" if it has none, and duties
// are those of the store.
func Audit(c *config.Config, store string, duties func(name string) duty.Duty, version string, clock func() time.Time, log *slog.Logger) (all []deliver.Options, err error) {
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
			ID: a.ID, Format: a.Format, Version: version, Sink: sink, Duty: duties(AuditDuty + a.ID),
			Newest: a.Begin == config.Newest, Logger: log,
		})
	}
	return all, nil
}

// auditSink makes the sink of one delivery.
func auditSink(c *config.Config, a *config.Audit, store string, clock func() time.Time) (deliver.Sink, error) {
	trusted, err := verify.Trusting(c.Path(a.CAFile))
	if err != nil {
		return nil, err
	}
	switch a.Type {
	case config.File:
		path := c.Path(a.Path)
		if store != "" && access.Within(path, store) {
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

// webhook makes a webhook. It reads the secrets once, so that a mistake shows now and not with the first message.
func webhook(w deliver.Webhook, trusted *tls.Config) (*deliver.Webhook, error) {
	if _, err := deliver.Secrets(w.SecretFile); err != nil {
		return nil, err
	}
	return deliver.NewWebhook(w, trusted), nil
}
