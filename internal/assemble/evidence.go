package assemble

import (
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/schemas/tga"
)

// Evidence returns how the evidence of the store in a directory is kept; ok is false where a file
// has no key that signs. A key inside of the store is refused: who copies the store would have it.
func Evidence(c *config.Config, store string, log *slog.Logger) (o evidence.Options, ok bool, err error) {
	e := &c.Evidence
	if !e.Signs() {
		return o, false, nil
	}
	o = evidence.Options{Origin: e.Origin, Every: e.Every.D, Leaves: int64(e.Appends), Cosigned: e.Witnesses, Logger: log}
	if e.Signer != "" {
		o.Signer, err = checkpoint.Remote(c.Path(e.Signer), e.PublicKey)
	} else {
		o.Signer, err = signer(c.Path(e.KeyFile), store)
	}
	if err != nil {
		return o, false, err
	}
	if e.FormerKeyFile != "" {
		former, err := signer(c.Path(e.FormerKeyFile), store)
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

func signer(path, store string) (checkpoint.Signer, error) {
	if within(path, store) {
		return checkpoint.Signer{}, tga.Errorf(tga.ValidationError, "evidence: the key %s lies in the store: who copies the store has it then. Put it elsewhere", path)
	}
	return checkpoint.ReadSigner(path)
}

// within says whether a path is in a directory, by the names that links lead to.
func within(path, dir string) bool {
	real := func(p string) string {
		if abs, err := filepath.Abs(p); err == nil {
			p = abs
		}
		for rest := ""; ; {
			if found, err := filepath.EvalSymlinks(p); err == nil || !errors.Is(err, os.ErrNotExist) || filepath.Dir(p) == p {
				return filepath.Join(found, rest)
			}
			p, rest = filepath.Dir(p), filepath.Join(filepath.Base(p), rest)
		}
	}
	rel, err := filepath.Rel(real(dir), real(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// place makes one place outside of the store.
func place(c *config.Config, p *config.Place, store string) (checkpoint.Target, error) {
	switch kind, value := p.Kind(); kind {
	case "file":
		path := c.Path(value)
		if within(path, store) {
			return nil, tga.Errorf(tga.ValidationError, "evidence: the file %s lies in the store, and would be rolled back with it. Put it on another disk", path)
		}
		return checkpoint.Directory{Path: path}, nil
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
