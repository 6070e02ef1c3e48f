package assemble

import (
	"log/slog"
	"net/http"

	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/schemas/tga"
)

// Evidence returns the options of the evidence of the store in a directory; ok is false if the
// configuration has no key that signs. A key inside the store is refused: whoever copies the store
// would have the key.
func Evidence(c *config.Config, store string, log *slog.Logger) (o evidence.Options, ok bool, err error) {
	e := &c.Evidence
	if !e.Signs() {
		return o, false, nil
	}
	o = evidence.Options{Origin: e.Origin, Every: e.Every.D, Leaves: int64(e.Appends), Cosigned: e.Witnesses, Logger: log}
	if e.Signer != "" {
		o.Signer, err = checkpoint.Remote(c.Path(e.Signer), e.PublicKey)
	} else {
		o.Signer, err = evidence.ReadSigner(c.Path(e.KeyFile), store)
	}
	if err != nil {
		return o, false, err
	}
	if e.FormerKeyFile != "" {
		former, err := evidence.ReadSigner(c.Path(e.FormerKeyFile), store)
		if err != nil {
			return o, false, err
		}
		o.Former = &former
	}
	for i := range e.Places {
		p, err := place(c, &e.Places[i], store)
		if err != nil {
			return o, false, err
		}
		if w, is := p.(*checkpoint.Witness); is {
			o.Witnesses = append(o.Witnesses, w.Key)
		}
		o.Places = append(o.Places, p)
	}
	return o, true, nil
}

// place makes one place outside of the store.
func place(c *config.Config, p *config.Place, store string) (checkpoint.Target, error) {
	switch kind, value := p.Kind(); kind {
	case "file":
		return evidence.FilePlace(c.Path(value), store)
	case "url":
		headers := http.Header{}
		if p.HeadersFile != "" {
			secret, err := secretfile.Headers(c.Path(p.HeadersFile))
			if err != nil {
				return nil, tga.Errorf(tga.ValidationError, "evidence: %w", err)
			}
			for name, text := range secret {
				headers.Set(name, text)
			}
		}
		return checkpoint.Web{URL: value, Header: headers}, nil
	case "git":
		file := p.Path
		if file == "" {
			file = "checkpoint"
		}
		return checkpoint.Git{Dir: c.Path(value), File: file, Remote: p.Remote}, nil
	default:
		key, err := fnote.NewVerifierForCosignatureV1(p.Key)
		if err != nil {
			return nil, tga.Errorf(tga.ValidationError, "evidence: the key of witness %s: %w", value, err)
		}
		return &checkpoint.Witness{URL: value, Key: key}, nil
	}
}

// CheckPublicKey implements [config.Builder].
func (builder) CheckPublicKey(key string, witness bool) (err error) {
	if witness {
		_, err = fnote.NewVerifierForCosignatureV1(key)
	} else {
		_, err = note.NewVerifier(key)
	}
	return err
}
