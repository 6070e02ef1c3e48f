package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/tgad/tgad/internal/listen"
)

// Evidence is the part about signed checkpoints. Without a key there are none.
type Evidence struct {
	KeyFile string `toml:"key_file"` // signs; outside of the store. tgad evidence keygen makes one
	// Signer is the unix socket of a program that has the key in place of a file; PublicKey is its public key.
	Signer    string `toml:"signer"`
	PublicKey string `toml:"public_key"`
	// FormerKeyFile is the key that signed before. It hands over to the key that signs now.
	FormerKeyFile string `toml:"former_key_file"`
	Origin        string `toml:"origin"` // names the store in its checkpoints; absent = the name of the key

	Every   Duration `toml:"every"`   // between checkpoints of a store that grows; 10s
	Appends int      `toml:"appends"` // after which a checkpoint is made at once; 4096

	Places    []Place `toml:"place"`
	Witnesses int     `toml:"witnesses"` // if fewer witnesses signed a checkpoint, that is logged; 0
}

// Place is a place outside of the store that gets checkpoints: one of file, url, git and witness.
type Place struct {
	File string `toml:"file"` // on another disk
	URL  string `toml:"url"`  // PUT replaces, GET returns
	// HeadersFile has headers for the URL, such as Authorization.
	HeadersFile string `toml:"headers_file"`
	Git         string `toml:"git"`     // a working tree, in which each checkpoint is a commit
	Path        string `toml:"path"`    // of the file in it; "checkpoint"
	Remote      string `toml:"remote"`  // remote that each commit is pushed to; absent = none
	Witness     string `toml:"witness"` // a witness of C2SP tlog-witness, by its URL
	Key         string `toml:"key"`     // its public key
}

// Kind returns which of the four keys a place has, with its value.
func (p *Place) Kind() (kind, value string) {
	for _, k := range [][2]string{{"file", p.File}, {"url", p.URL}, {"git", p.Git}, {"witness", p.Witness}} {
		if k[1] != "" {
			return k[0], k[1]
		}
	}
	return "", ""
}

// Signs says whether checkpoints are signed.
func (e *Evidence) Signs() bool { return e.KeyFile != "" || e.Signer != "" }

func (e *Evidence) check(r *report, b Builder) {
	r.duration("evidence.every", e.Every)
	r.count("evidence.appends", e.Appends)
	if !e.Signs() {
		for key, set := range map[string]bool{
			"origin": e.Origin != "", "every": e.Every.D != 0, "appends": e.Appends != 0, "place": len(e.Places) > 0,
			"witnesses": e.Witnesses != 0, "former_key_file": e.FormerKeyFile != "", "public_key": e.PublicKey != "",
		} {
			if set {
				r.add("evidence."+key, "it says something of checkpoints, and no key_file and no signer signs any")
			}
		}
		return
	}
	switch {
	case e.KeyFile != "" && e.Signer != "":
		r.add("evidence.signer", "it cannot stand beside key_file: one of them has the key")
	case e.Signer != "" && e.PublicKey == "":
		r.add("evidence.public_key", "it is required beside signer")
	case e.Signer == "" && e.PublicKey != "":
		r.add("evidence.public_key", "it belongs to signer: a key_file says what its public key is")
	}
	if e.PublicKey != "" {
		r.key("evidence.public_key", e.PublicKey, false, b)
	}
	if strings.ContainsFunc(e.Origin, func(c rune) bool { return c <= ' ' || c == '+' }) || len(e.Origin) > 255 {
		r.add("evidence.origin", "%.40q: want at most 255 characters without blanks, + and control characters", e.Origin)
	}
	witnesses := 0
	for i := range e.Places {
		p, at := &e.Places[i], fmt.Sprintf("evidence.place.%d", i)
		p.check(r, at, b)
		if p.Witness != "" {
			witnesses++
		}
	}
	if e.Witnesses < 0 || e.Witnesses > witnesses {
		r.add("evidence.witnesses", "%d: there are %d places with a witness", e.Witnesses, witnesses)
	}
}

// placeOnly lists, per key of a [[evidence.place]], the kind that it belongs to.
var placeOnly = map[string]string{"headers_file": "url", "path": "git", "remote": "git", "key": "witness"}

func (p *Place) check(r *report, at string, b Builder) {
	kinds := 0
	for _, v := range []string{p.File, p.URL, p.Git, p.Witness} {
		if v != "" {
			kinds++
		}
	}
	if kinds != 1 {
		r.add(at, "want one of file, url, git and witness")
		return
	}
	kind, _ := p.Kind()
	for key, of := range placeOnly {
		if r.has(at+"."+key) && kind != of {
			r.add(at+"."+key, "it does not belong to a place with %s", kind)
		}
	}
	for key, text := range map[string]string{"url": p.URL, "witness": p.Witness} {
		if text == "" {
			continue
		}
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && listen.Loopback(u.Host)) || u.User != nil {
			r.add(at+"."+key, "%.100q: want https://host/path, or http:// of this machine, without a password", text)
		}
	}
	if p.Witness != "" {
		r.key(at+".key", p.Key, true, b)
	}
	if path := filepath.ToSlash(p.Path); p.Path != "" && !filepath.IsLocal(path) {
		r.add(at+".path", "%q: want a path within the working tree", p.Path)
	}
}

// key reports a key that is not in the text form of a signed note.
func (r *report) key(at, key string, witness bool, b Builder) {
	if key == "" {
		r.add(at, "it is required")
	} else if b != nil {
		if err := b.CheckPublicKey(key, witness); err != nil {
			r.add(at, "%.100q is no public key of a signed note, name+number+key: %v", key, err)
		}
	}
}
